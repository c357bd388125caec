"""A way to PostgreSQL that loses what the server answers to a COMMIT, so that nobody knows what became of it."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

SOCKET = ".s.PGSQL.5432"


class Way:
    """Stands before the server's socket. `cut` is set once an answer to a COMMIT was lost."""

    def __init__(self, url: str, target: str) -> None:
        self.url = url
        self._target = target
        self._armed = False
        self.cut = asyncio.Event()

    def lose_the_next_commit(self) -> None:
        self._armed = True
        self.cut.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(self._target)
        back = asyncio.create_task(_copy(from_server, writer))
        try:
            while data := await reader.read(65_536):
                if self._armed and b"COMMIT" in data:
                    self._armed = False
                    back.cancel()
                    to_server.write(data)
                    await to_server.drain()
                    # The server has done it: it answered, and the answer goes nowhere.
                    with suppress(asyncio.CancelledError):
                        await back
                    assert await from_server.read(1)
                    self.cut.set()
                    return
                to_server.write(data)
                await to_server.drain()
        except ConnectionError:
            pass
        finally:
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)
            for end in (writer, to_server):
                end.close()
                with suppress(ConnectionError):
                    await end.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def way_to(url: str) -> AsyncIterator[Way]:
    """A way to the server of the URL."""
    host = parse_qs(urlsplit(url).query)["host"][0]
    with tempfile.TemporaryDirectory(prefix="speedinfer-way-") as folder:
        way = Way(url.replace(host, folder), str(Path(host) / SOCKET))
        server = await asyncio.start_unix_server(way.serve, Path(folder) / SOCKET)
        try:
            yield way
        finally:
            server.close()
            await server.wait_closed()
