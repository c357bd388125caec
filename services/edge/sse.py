"""Server-sent events as the edge writes them. Pure; the relay imports it."""

from collections.abc import Iterable

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
CONTENT_TYPE = "text/event-stream; charset=utf-8"


def encode(payloads: Iterable[bytes]) -> bytes:
    """JSON texts as events, one each, byte for byte.

    A line end inside a JSON text can only be white space between its tokens, but it would end the event's line: it becomes
    a space, which is the same JSON."""
    frames = []
    for payload in payloads:
        if b"\n" in payload or b"\r" in payload:
            payload = payload.replace(b"\r", b" ").replace(b"\n", b" ")
        frames.append(b"data: %b\n\n" % payload)
    return b"".join(frames)
