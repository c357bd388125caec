"""Reads a request's body: bounded in size, before and after decompression, and in time.

`inference.py` and `admin.py` import it. aiohttp's own decompression is switched off (`http_server.py`), because it knows
no bound on what comes out.
"""

import asyncio
import zlib

from aiohttp import web

from services.edge.openai_errors import BODY_TOO_SLOW, Refused, invalid, too_large, unsupported_media_type

# A body of 32 MiB over 4 Mbit/s takes about a minute.
READ_DEADLINE_S = 75.0
# 16 + zlib's largest window: gzip. 0: zlib's own header (`deflate`).
_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 0}


def check_media_type(request: web.Request) -> None:
    """Refused (415) unless the body says that it is JSON in UTF-8, or says nothing."""
    if "content-type" in request.headers:
        kind = request.content_type.lower()
        if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
            raise Refused(unsupported_media_type("The body must be JSON: send 'Content-Type: application/json'."))
        charset = request.charset
        if charset is not None and charset.lower() not in ("utf-8", "utf8", "us-ascii"):
            raise Refused(unsupported_media_type("JSON is UTF-8; no other charset is read."))
    if request.headers.get("content-encoding", "identity").lower() not in ("identity", *_WINDOWS):
        raise Refused(unsupported_media_type("Only the content encodings gzip and deflate are read."))


async def read_json(request: web.Request, limit_bytes: int, deadline_s: float = READ_DEADLINE_S) -> bytes:
    """The body's bytes, decompressed. Refused with 413, 415, 408, or 400 where it is broken."""
    if (request.content_length or 0) > limit_bytes:
        raise Refused(too_large(limit_bytes))
    check_media_type(request)
    coding = request.headers.get("content-encoding", "identity").lower()
    inflater = zlib.decompressobj(_WINDOWS[coding]) if coding in _WINDOWS else None
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(deadline_s):
            async for chunk in request.content.iter_any():
                piece = chunk if inflater is None else inflate(inflater, chunk, limit_bytes + 1 - size)
                size += len(piece)
                if size > limit_bytes:
                    raise Refused(too_large(limit_bytes))
                parts.append(piece)
    except TimeoutError:
        raise Refused(BODY_TOO_SLOW) from None
    except web.RequestPayloadError:
        raise Refused(invalid("The body's framing is broken.")) from None
    if inflater is not None and not inflater.eof and size:
        raise Refused(invalid(f"The body's {coding} data is cut off."))
    return b"".join(parts)


def inflate(inflater: "zlib._Decompress", chunk: bytes, room: int) -> bytes:
    """At most `room` bytes of what a chunk decompresses to; what is beyond is never made."""
    try:
        piece = inflater.decompress(chunk, room)
    except zlib.error:
        raise Refused(invalid("The body's compressed data is broken.")) from None
    if inflater.unused_data:
        raise Refused(invalid("There is something after the body's compressed data."))
    return piece
