"""Reads a request's body: bounded in size, before and after decompression, in time, and together with all others.

`inference.py` and `admin.py` import it. aiohttp's own decompression is switched off (`http_connections.py`), because it knows
no bound on what comes out.
"""

import asyncio
import contextlib
import zlib

from aiohttp import web

from services.edge.body_room import BodyClaim
from services.edge.openai_errors import BODY_TOO_SLOW, Refused, invalid, too_large, unsupported_media_type

# What is unpacked between two looks at everything else.
_STEP_BYTES = 1024 * 1024
# How long a client whose body is refused may go on with it before it hears so.
_READ_PAST_S = 2.0
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
    if coding(request) not in ("identity", *_WINDOWS):
        raise Refused(unsupported_media_type("Only the content encodings gzip and deflate are read, one at a time."))


def coding(request: web.Request) -> str:
    """The content coding; several, in one header or in many, make a name that nobody knows."""
    named = ",".join(request.headers.getall("content-encoding", ()))
    return named.strip().lower() or "identity"


async def read_json(request: web.Request, limit_bytes: int, deadline_s: float, claim: BodyClaim | None) -> bytes:
    """The body's bytes, decompressed. Refused with 413, 415, 408, 503 where there is no room, or 400 where it is broken.
    Without a claim it is read past: refused alike, but nothing of it is kept."""
    try:
        return await _read(request, limit_bytes, deadline_s, claim)
    except Refused as refused:
        if refused.problem is not BODY_TOO_SLOW and (request.content_length or 0) <= 2 * limit_bytes:
            await _read_past(request, 2 * limit_bytes)
        raise


async def _read_past(request: web.Request, limit_bytes: int) -> None:
    """Let a client write what it has begun, if that is not too much. A proxy between, as our sidecar is, would end the
    connection after an answer that comes before the body's end, and a client that still writes would never read it."""
    with contextlib.suppress(TimeoutError, web.RequestPayloadError):
        async with asyncio.timeout(_READ_PAST_S):
            async for chunk in request.content.iter_any():
                limit_bytes -= len(chunk)
                if limit_bytes <= 0:
                    return


async def _read(request: web.Request, limit_bytes: int, deadline_s: float, claim: BodyClaim | None) -> bytes:
    if (request.content_length or 0) > limit_bytes:
        raise Refused(too_large(limit_bytes))
    check_media_type(request)
    if claim is not None:
        claim.expect(request.content_length or 0)
    name = coding(request)
    inflater = zlib.decompressobj(_WINDOWS[name]) if name in _WINDOWS else None
    parts: list[bytes] = []
    size = packed = 0
    try:
        async with asyncio.timeout(deadline_s):
            async for chunk in request.content.iter_any():
                # Compressed data may go on for ever without making anything.
                packed += len(chunk)
                if packed > limit_bytes:
                    raise Refused(too_large(limit_bytes))
                more = True
                while more:
                    piece, chunk, more = (chunk, b"", False) if inflater is None else inflate(inflater, chunk)
                    size += len(piece)
                    if size > limit_bytes:
                        raise Refused(too_large(limit_bytes))
                    if claim is not None:
                        claim.grow(len(piece))
                        parts.append(piece)
                    if more:
                        await asyncio.sleep(0)
    except TimeoutError:
        raise Refused(BODY_TOO_SLOW) from None
    except web.RequestPayloadError:
        raise Refused(invalid("The body's framing is broken.")) from None
    if inflater is not None and not inflater.eof and packed:
        raise Refused(invalid(f"The body's {name} data is cut off."))
    return b"".join(parts)


def inflate(inflater: "zlib._Decompress", chunk: bytes) -> tuple[bytes, bytes, bool]:
    """A step of what a chunk decompresses to, the rest of the chunk, and whether there is more to come of it."""
    try:
        piece = inflater.decompress(chunk, _STEP_BYTES)
    except zlib.error:
        raise Refused(invalid("The body's compressed data is broken.")) from None
    if inflater.unused_data:
        raise Refused(invalid("There is something after the body's compressed data."))
    return piece, inflater.unconsumed_tail, len(piece) == _STEP_BYTES and not inflater.eof
