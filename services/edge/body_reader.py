"""From a body's bytes to a checked request, without stopping the loop for everybody else. `admission.py` imports it.

Small bodies are read where they are: a thread would cost more than it saves. Large ones are read in a thread, a few at a time;
whoever waits for a turn waits within the request's own life, and what waits is bounded by the edge's bound of open requests.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from services.edge import json_object
from services.edge.openai_request import Bounds, InferenceRequest

Check = Callable[[dict[str, Any], dict[str, bytes], Bounds], InferenceRequest]

# About five milliseconds of work in the worst case.
INLINE_BYTES = 64 * 1024
MAX_THREADS = 2


class BodyReader:
    """Reads bodies under the edge's bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._threads = ThreadPoolExecutor(MAX_THREADS, "reads bodies")

    async def read(self, body: bytes, check: Check) -> InferenceRequest:
        """The request that a body makes. Refused (400) names what is wrong with it."""
        if len(body) <= INLINE_BYTES:
            return self._read(body, check)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, body, check)

    def _read(self, body: bytes, check: Check) -> InferenceRequest:
        values, members = json_object.parse(body, self._bounds.max_depth)
        return check(values, members, self._bounds)
