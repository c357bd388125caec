"""A TCP connection that a test can stop in either direction, and cut: what is between the commit of a call and its answer.

Bytes that are stopped are kept and go on later, as on a network; what is cut is gone.
"""

import asyncio
from types import TracebackType

from tests.harness.loop_thread import LoopThread

CHUNK_BYTES = 65_536


class Wire:
    """`with Wire(address) as wire:` gives one at `wire.address` that leads to `address`."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._thread = LoopThread("wire")
        self._asks = asyncio.Event()
        self._answers = asyncio.Event()
        self._asks.set()
        self._answers.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.address = ""

    def __enter__(self) -> "Wire":
        self._thread.start()
        self._thread.call(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.call(self._stop())
        self._thread.stop()

    def stop_asks(self) -> None:
        """Nothing arrives any more."""
        self._thread.soon(self._asks.clear)

    def stop_answers(self) -> None:
        """What is asked arrives; no answer comes back."""
        self._thread.soon(self._answers.clear)

    def cut(self) -> None:
        """Close all connections, with what was stopped in them, and let new ones flow."""
        self._thread.call(self._cut())

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._cut()

    async def _cut(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._asks.set()
        self._answers.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        far_writer: asyncio.StreamWriter | None = None
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
            ways = {
                asyncio.ensure_future(_pump(reader, far_writer, self._asks)),
                asyncio.ensure_future(_pump(far_reader, writer, self._answers)),
            }
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            # The other side is down, or this one was cut: both look the same from either end.
            pass
        finally:
            self._tasks.discard(task)
            for each in (writer, far_writer):
                if each is not None:
                    each.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flows: asyncio.Event) -> None:
    while chunk := await reader.read(CHUNK_BYTES):
        await flows.wait()
        writer.write(chunk)
        await writer.drain()
