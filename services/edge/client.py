"""The HTTP client of one request, as the relay sees it: somebody who takes bytes, may be slow, and may be gone.

Invariants: writing to a client that is gone does nothing and raises nothing; a client whose connection was cut because it took
nothing (`http_connections.py`) counts as gone, and so does one that still takes bytes when `until_s` is over; leaving is told
once, at once, whatever the relay is waiting for.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import cast

from aiohttp import web
from aiohttp.http import StreamWriter


class _Response(web.StreamResponse):
    """Whose headers wait for the first bytes and go with them in one system call, as aiohttp has it for whole answers."""

    _send_headers_immediately = False


class Client:
    """Whoever sent the request."""

    def __init__(self, request: web.Request, until_s: float) -> None:
        """`until_s` is of the loop's clock."""
        self._request = request
        self._until_s = until_s
        self._writer: StreamWriter | None = None
        self._on_leave: Callable[[], None] | None = None
        self.response: web.StreamResponse | None = None
        self.gone = False
        # Told from outside: nothing more will be written, whatever the relay still does.
        self.finished = False

    @property
    def begun(self) -> bool:
        """Status and headers are said; they go with the first bytes."""
        return self.response is not None

    def on_leave(self, callback: Callable[[], None] | None) -> None:
        """Call this when the client leaves; at once if it has."""
        self._on_leave = callback
        if self.gone and callback is not None:
            callback()

    def left(self) -> None:
        """The client is gone."""
        if self.gone or self.finished:
            return
        self.gone = True
        if self._on_leave is not None:
            self._on_leave()

    async def begin(self, status: int, headers: Mapping[str, str], length: int | None = None) -> None:
        """Say status and headers, before the first bytes; with a length the body is not chunked."""
        if self.gone or self.begun:
            return
        response = _Response(status=status, headers=headers)
        if length is not None:
            response.content_length = length
        self.response = response
        self._writer = cast(StreamWriter, await response.prepare(self._request))
        # Nothing was written that could have told: whoever is away already is not to count as one who was shown content.
        if self._request.transport is None or self._request.transport.is_closing():
            self.left()

    async def write(self, data: bytes) -> None:
        """Send bytes, and wait while the client's buffer is full."""
        if self.gone or self._writer is None:
            return
        try:
            await self._writer.write(data, drain=False)
            if self._request.protocol.writing_paused:
                await self._wait_for_room()
        except ConnectionError:
            self.left()

    async def end(self, data: bytes) -> None:
        """Send the last bytes, and with them the end of the body; wait until they are taken as far as `write` does."""
        if self.gone or self._writer is None:
            return
        try:
            async with asyncio.timeout_at(self._until_s):
                await self._writer.write_eof(data)
        except TimeoutError:
            self._cut()
        except ConnectionError:
            self.left()

    async def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send a whole answer."""
        await self.begin(status, headers, len(body))
        await self.end(body)

    async def _wait_for_room(self) -> None:
        # Waited for by a task that is never cancelled: aiohttp goes on handing out the future that was, and whoever waits
        # next would be cancelled by it. It ends at the latest with the connection.
        drained = asyncio.ensure_future(self._drained())
        await asyncio.wait({drained}, timeout=max(self._until_s - asyncio.get_running_loop().time(), 0))
        if not drained.done() and not self.gone:
            self._cut()

    def _cut(self) -> None:
        """Bytes are taken one by one without end."""
        if self._request.transport is not None:
            self._request.transport.abort()
        self.left()

    async def _drained(self) -> None:
        assert self._writer is not None
        try:
            await self._writer.drain()
        except ConnectionError:
            self.left()
        if self._request.transport is None:
            self.left()
