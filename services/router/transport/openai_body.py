"""The body that a worker gets: the client's members joined again, with what the gateway rules. Pure; the OpenAI transport
imports it.

Exactly one name for the output limit; `stream` and `stream_options` only in streams; the worker's own model name.
"""

import functools
import json
from collections.abc import Sequence

from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION

from services.router.transport.port import Dispatch

# Letters of a name that is written once for many requests.
MAX_REMEMBERED = 256
STREAM_OPTIONS = {
    "none": b"",
    "usage": b'{"include_usage":true}',
    "continuous": b'{"include_usage":true,"continuous_usage_stats":true}',
}


def build(
    dispatch: Dispatch, members: Sequence[tuple[str, bytes]], model: str, max_tokens_field: str, stream_options: str
) -> bytes:
    """The JSON text. `members` are those that pass; `stream_options` is a key of STREAM_OPTIONS."""
    parts = [b'"model":' + _quoted(model)]
    parts += [_quoted(name) + b":" + value for name, value in members]
    if dispatch.output_limit is not None:
        # Completions know only the one name.
        name = max_tokens_field if dispatch.operation == OPERATION_CHAT_COMPLETION else "max_tokens"
        parts.append(f'"{name}":{dispatch.output_limit}'.encode())
    if dispatch.stream:
        parts.append(b'"stream":true')
        if options := STREAM_OPTIONS[stream_options]:
            parts.append(b'"stream_options":' + options)
    return b"{" + b",".join(parts) + b"}"


def _quoted(name: str) -> bytes:
    return _quoted_before(name) if len(name) <= MAX_REMEMBERED else json.dumps(name).encode()


# Names are of a list, as a rule. Where a client's own pass, they come and go.
@functools.lru_cache(maxsize=512)
def _quoted_before(name: str) -> bytes:
    return json.dumps(name).encode()
