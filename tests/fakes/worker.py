"""A programmable worker: a real HTTP server on loopback that speaks the OpenAI API, well or badly, as it is told.

In a test:

    async with FakeWorker() as worker:
        worker.scripts["acme/model-1"] = scripts.chat_stream("acme/model-1", ["Hi"], None)   # no usage
        ...register worker.url...

For people and other processes: `python -m tests.fakes.worker --port P`; then the scenarios of `scenarios/` are chosen by the
model's name.
"""

import argparse
import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Collection, Sequence
from types import TracebackType

from tests.fakes import scripts, styles
from tests.fakes.scenarios import table
from tests.fakes.scripts import Close, HalfClose, Hang, Pause, Received, Reset, Script, Step, WaitFor

MODEL = "acme/model-1"


class FakeWorker:
    """The server. What is set on it takes effect with the next request."""

    def __init__(
        self,
        models: Sequence[str] = (MODEL,),
        *,
        port: int = 0,
        style: styles.Style = "openai",
        continuous: bool = False,
        counts: bool = True,
        lacks: Collection[str] = (),
        owned_by: str = "fake",
    ) -> None:
        # What /v1/models lists.
        self.models = list(models)
        # Model -> what it does; a model without a script answers in the worker's style.
        self.scripts: dict[str, Script] = {}
        # Path (such as `/health`) -> what is answered there, before everything else.
        self.paths: dict[str, Script] = {}
        self.style: styles.Style = style
        # Whether `continuous_usage_stats` is honoured.
        self.continuous = continuous
        # See styles.Manner.
        self.counts = counts
        self.lacks = lacks
        self.owned_by = owned_by
        # What the counting routes answer; None: there are none. A script for their path goes before it.
        self.counted: int | None = None
        # Every request but those for /health and /v1/models, in order.
        self.requests: list[Received] = []
        self.connections: set[_Connection] = set()
        self.connections_made = 0
        self._port = port
        self._server: asyncio.Server | None = None
        self._arrival = asyncio.Condition()

    async def __aenter__(self) -> "FakeWorker":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        """The port; the same after a stop and a new start."""
        return self._port

    @property
    def url(self) -> str:
        """The endpoint to register."""
        return f"http://127.0.0.1:{self._port}/v1"

    async def start(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is not None:
            server, self._server = self._server, None
            # What was accepted just now becomes a connection first: of a server that is closed asyncio makes none that works,
            # and nobody would ever close its socket.
            for listener in server.sockets:
                asyncio.get_running_loop().remove_reader(listener)
            for _turn in range(2):
                await asyncio.sleep(0)
            server.close()
        connections = list(self.connections)
        for connection in connections:
            connection.cut()
        await asyncio.gather(*(connection.finished() for connection in connections))

    def close_idle(self) -> None:
        """Close the connections on which nothing runs, as a server does whose keep-alive time is over."""
        for connection in list(self.connections):
            connection.close_if_idle()

    async def received(self, number: int) -> Received:
        """Wait for the request of that number (counted from 1), and answer it."""
        async with self._arrival:
            await self._arrival.wait_for(lambda: len(self.requests) >= number)
        return self.requests[number - 1]

    async def note(self, request: Received) -> None:
        """Only connections call this."""
        async with self._arrival:
            self.requests.append(request)
            self._arrival.notify_all()

    def script_for(self, request: Received) -> Script:
        """What to do with a request."""
        if request.path in self.paths:
            return self.paths[request.path]
        if (health := styles.is_ready(self.style, request.path)) is not None:
            return [health]
        if request.path == "/v1/models":
            data = [{"id": name, "object": "model", "created": 1, "owned_by": self.owned_by} for name in self.models]
            return [scripts.json_answer({"object": "list", "data": data})]
        if request.method != "POST":
            return [scripts.json_answer({"detail": "Not Found"}, 404)]
        if request.path in styles.COUNTING and self.counted is not None:
            return [styles.count(request.path, self.counted)]
        script = self.scripts.get(request.model)
        if script is not None:
            return script
        manner = styles.Manner(self.style, self.continuous, self.counts, self.lacks)
        return list(styles.respond(manner, self.models, request))


class _Connection(asyncio.Protocol):
    """One connection: requests one after another, each answered by its script."""

    def __init__(self, worker: FakeWorker) -> None:
        self._worker = worker
        self._buffer = bytearray()
        self._more = asyncio.Event()
        self._lost = asyncio.Event()
        self._busy = False
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._worker.connections.add(self)
        self._worker.connections_made += 1
        self._task = asyncio.get_running_loop().create_task(self._serve(transport))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._more.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()
        self._more.set()
        self._worker.connections.discard(self)

    def cut(self) -> None:
        """Tear it down."""
        if self._transport is not None:
            self._transport.abort()

    def close_if_idle(self) -> None:
        """Close it between two requests."""
        if not self._busy and self._transport is not None:
            self._transport.close()

    async def finished(self) -> None:
        """Wait until its task has ended."""
        if self._task is not None:
            self._lost.set()
            self._more.set()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _serve(self, transport: asyncio.Transport) -> None:
        while (request := await self._request()) is not None:
            self._busy = True
            if request.method == "POST":
                await self._worker.note(request)
            script = self._worker.script_for(request)
            steps = script(request) if callable(script) else script
            for step in steps:
                if not await self._do(step, transport):
                    break
            if self._lost.is_set():
                request.disconnected.set()
            request.answered.set()
            self._busy = False

    async def _do(self, step: Step, transport: asyncio.Transport) -> bool:
        """One step; False if the connection is no more."""
        if isinstance(step, bytes):
            # A turn of the loop lets the other side's departure be seen.
            await asyncio.sleep(0)
            if not transport.is_closing():
                transport.write(step)
        elif isinstance(step, Pause):
            await self._until(asyncio.sleep(step.seconds))
        elif isinstance(step, WaitFor):
            await self._until(step.event.wait())
        elif isinstance(step, Hang):
            await self._lost.wait()
        elif isinstance(step, HalfClose):
            # The other end may be gone by now.
            with contextlib.suppress(OSError):
                transport.write_eof()
        elif isinstance(step, Reset):
            linger = struct.pack("ii", 1, 0)
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            transport.abort()
            await self._lost.wait()
            return False
        else:
            assert isinstance(step, Close)
            transport.close()
            await self._lost.wait()
            return False
        return not self._lost.is_set()

    async def _until(self, waited_for: object) -> None:
        """Wait for something, or for the connection's end."""
        tasks = {asyncio.ensure_future(waited_for), asyncio.ensure_future(self._lost.wait())}  # type: ignore[arg-type]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _request(self) -> Received | None:
        """The next request, or None at the connection's end."""
        while True:
            head, separator, rest = bytes(self._buffer).partition(b"\r\n\r\n")
            if separator:
                lines = head.decode("latin-1").split("\r\n")
                method, path, _ = lines[0].split(" ", 2)
                fields = (line.partition(":") for line in lines[1:])
                headers = {name.strip().lower(): value.strip() for name, _, value in fields}
                length = _body_length(headers, rest)
                if length is not None:
                    taken, body = length
                    del self._buffer[: len(head) + 4 + taken]
                    return Received(method, path, headers, body)
            if self._lost.is_set():
                return None
            self._more.clear()
            await self._more.wait()


def _body_length(headers: dict[str, str], rest: bytes) -> tuple[int, bytes] | None:
    """How many bytes of `rest` are the body, and the body; None if it is not all there yet."""
    if headers.get("transfer-encoding", "").lower() != "chunked":
        length = int(headers.get("content-length", "0"))
        return (length, rest[:length]) if len(rest) >= length else None
    body = b""
    position = 0
    while (line_end := rest.find(b"\r\n", position)) >= 0:
        size = int(rest[position:line_end], 16)
        if len(rest) < line_end + 2 + size + 2:
            return None
        body += rest[line_end + 2 : line_end + 2 + size]
        position = line_end + 2 + size + 2
        if size == 0:
            return position, body
    return None


async def _run(port: int, style: styles.Style, continuous: bool) -> None:
    scripted = table.scripts_by_model()
    async with FakeWorker([MODEL, *scripted], port=port, style=style, continuous=continuous) as worker:
        worker.scripts.update(scripted)
        print(json.dumps({"url": worker.url, "models": worker.models}), flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--style", choices=styles.ALL, default="openai")
    parser.add_argument("--continuous", action="store_true", help="honour continuous_usage_stats")
    arguments = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(arguments.port, arguments.style, arguments.continuous))


if __name__ == "__main__":
    main()
