"""An HTTP client of a few lines, for tests that leave at an exact place or hold thousands of connections.

It reads an answer of the edge event by event, over a connection of its own, and can close it at any moment.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

# What a client that stops reading holds of an answer, besides the system's own buffers.
BUFFER_BYTES = 64 * 1024


class BadAnswer(AssertionError):
    """The edge did not speak HTTP or SSE as it must."""


class RawCall:
    """`async with RawCall(host, port, key, body) as call:`; the request is sent; then `head()`, and `events()` or `body()`."""

    def __init__(
        self,
        host: str,
        port: int,
        key: str,
        body: dict[str, Any],
        *,
        opening: asyncio.Semaphore | None = None,
        receive_bytes: int | None = None,
    ) -> None:
        """`opening` bounds how many of its users open a connection at once; `receive_bytes` is the system's buffer."""
        self._host, self._port = host, port
        self._opening = opening
        self._receive_bytes = receive_bytes
        self._key = key
        self._body = json.dumps(body).encode()
        self.status = 0
        self.headers: dict[str, str] = {}

    async def __aenter__(self) -> "RawCall":
        async with self._opening or contextlib.nullcontext():
            own = socket.socket()
            own.setblocking(False)
            if self._receive_bytes is not None:
                # Before connecting, or the window has been told already.
                own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_bytes)
            try:
                await asyncio.get_running_loop().sock_connect(own, (self._host, self._port))
                self._reader, self._writer = await asyncio.open_connection(sock=own, limit=BUFFER_BYTES)
            except BaseException:
                own.close()
                raise
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {self._host}\r\nAuthorization: Bearer {self._key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(self._body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + self._body)
        return self

    async def __aexit__(self, *_: object) -> None:
        # Also what the system still holds back goes away with it: whoever left reads nothing more.
        self._writer.transport.abort()

    async def head(self) -> None:
        """Wait for status and headers. ConnectionError or EOFError if the connection breaks."""
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self.status = int(lines[0].split(" ")[1])
        for line in lines[1:-2]:
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()

    @property
    def is_stream(self) -> bool:
        """Whether events follow."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    async def body(self) -> bytes:
        """The whole body."""
        if "content-length" in self.headers:
            return await self._reader.readexactly(int(self.headers["content-length"]))
        return b"".join([part async for part in self._chunks()])

    async def events(self) -> AsyncIterator[str]:
        """The data of each event, comments left out, to the answer's proper end. EOFError if it is cut."""
        rest = b""
        async for part in self._chunks():
            *whole, rest = (rest + part).split(b"\n\n")
            for event in whole:
                if event.startswith(b":"):
                    continue
                if not event.startswith(b"data: ") or b"\n" in event:
                    raise BadAnswer(f"no event: {event[:100]!r}")
                yield event[6:].decode()
        if rest:
            raise BadAnswer(f"cut in the middle of an event: {rest[:100]!r}")

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readuntil(b"\r\n")
