"""JSON answers of the routes that are not inference. Edge route modules import it."""

from typing import Any

import orjson
from aiohttp import web


def answer(value: Any, status: int = 200) -> web.Response:
    """A value as an HTTP answer."""
    return web.Response(status=status, body=orjson.dumps(value), content_type="application/json")
