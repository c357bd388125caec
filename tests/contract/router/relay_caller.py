"""A relay call as a test speaks it: commands one by one, and what comes back by number."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from speedinfer.router.v1 import frame_pb2, inference_pb2, relay_pb2, relay_pb2_grpc

from services.common import relay_terms
from tests.contract.router.gateway import Answer


class RelayCaller:
    """One call."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.hello: relay_pb2.RouterHello | None = None
        self.draining = False
        self.pongs = 0
        self.events: dict[int, list[relay_pb2.RelayEvent]] = defaultdict(list)
        # By message, how many events it had.
        self.messages: list[int] = []
        self.code: grpc.StatusCode | None = None
        # While this is not set nothing is read, as by an edge that is stopped, or whose connection is slow.
        self.reads = asyncio.Event()
        self.reads.set()
        self._numbers = 0
        self._turn = asyncio.Lock()
        self._moved = asyncio.Condition()
        self._reader = asyncio.ensure_future(self._read())

    async def say(self, *commands: relay_pb2.RelayCommand) -> None:
        """Send commands in one message."""
        # gRPC takes one message after another.
        async with self._turn:
            await self.call.write(relay_pb2.RelayRequest(commands=commands))

    async def ping(self) -> None:
        """Ask whether the router is there."""
        async with self._turn:
            await self.call.write(relay_pb2.RelayRequest(ping=True))

    def next_number(self) -> int:
        """One that was not used; those who wait to say something are served in order."""
        self._numbers += 1
        return self._numbers

    async def start(self, number: int, item: inference_pb2.GenerateItem, credit_bytes: int = 65_536) -> None:
        start = relay_pb2.RelayStart(item=item, credit_bytes=credit_bytes)
        await self.say(relay_pb2.RelayCommand(number=number, start=start))

    async def credit(self, number: int, credit_bytes: int) -> None:
        await self.say(relay_pb2.RelayCommand(number=number, credit_bytes=credit_bytes))

    async def cancel(self, number: int) -> None:
        await self.say(relay_pb2.RelayCommand(number=number, cancel=relay_pb2.RelayCancel()))

    async def until(self, look: Callable[[], Any]) -> Any:
        """The first truthy answer of `look`, asked again whenever something came."""
        async with asyncio.timeout(30), self._moved:
            while not (found := look()):
                await self._moved.wait()
            return found

    def answer(self, number: int) -> Answer:
        """What came of a number, as an answer; parts put together."""
        answer, parts = Answer(), b""
        for event in self.events[number]:
            kind = event.WhichOneof("event")
            if kind == "frame":
                answer.add(event.frame)
            elif kind in ("part", "last_part"):
                parts += getattr(event, kind)
                if kind == "last_part":
                    answer.add(frame_pb2.Frame.FromString(parts))
                    parts = b""
        return answer

    async def whole(self, number: int) -> Answer:
        """The same, once it has ended."""
        return await self.until(
            lambda: found if (found := self.answer(number)).end or found.failure else None  # type: ignore[func-returns-value]
        )

    async def refused(self, number: int) -> int:
        """Why a command was not done."""
        event = await self.until(lambda: next((e for e in self.events[number] if e.HasField("refusal")), None))
        return int(event.refusal.reason)

    async def _read(self) -> None:
        try:
            while (response := await self._next()) is not grpc.aio.EOF:
                async with self._moved:
                    if response.HasField("hello"):
                        self.hello = response.hello
                    self.draining |= response.draining
                    self.pongs += response.pong
                    if response.events:
                        self.messages.append(len(response.events))
                    for event in response.events:
                        self.events[event.number].append(event)
                    self._moved.notify_all()
            self.code = await self.call.code()
        except grpc.aio.AioRpcError as error:
            self.code = error.code()
        except asyncio.CancelledError:
            self.code = grpc.StatusCode.CANCELLED
        async with self._moved:
            self._moved.notify_all()

    async def _next(self) -> Any:
        await self.reads.wait()
        return await self.call.read()

    async def close(self) -> None:
        self.call.cancel()
        self.reads.set()
        await self._reader


@asynccontextmanager
async def relay(channel: grpc.aio.Channel, protocol: int = relay_terms.PROTOCOL) -> AsyncIterator[RelayCaller]:
    """A call whose hello was said."""
    call = relay_pb2_grpc.RelayServiceStub(channel).Relay()
    caller = RelayCaller(call)
    try:
        await call.write(relay_pb2.RelayRequest(hello=relay_pb2.EdgeHello(protocol=protocol)))
        yield caller
    finally:
        await caller.close()
