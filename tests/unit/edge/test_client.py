"""The client as the relay sees it, on aiohttp's own protocol and writer: one that takes a little at a time, and one that
takes nothing."""

import asyncio
from typing import Any, cast

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import StreamWriter

from services.edge.client import Client
from tests.unit.edge.conftest import eventually

STALL_S = 0.005
FULL = 100_000


class Socket(asyncio.Transport):
    """A transport of which `take` bytes leave the buffer between two looks."""

    protocol: BaseProtocol

    def __init__(self, take: int) -> None:
        super().__init__()
        self.take = take
        self.size = FULL
        self.looks = 0
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        self.looks += 1
        self.size = max(self.size - self.take, 1)
        return self.size

    def write(self, data: Any) -> None:
        pass

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True
        asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


class Request:
    """As much of a request as a client that has begun looks at."""

    def __init__(self, transport: Socket) -> None:
        loop = asyncio.get_running_loop()
        self.protocol = BaseProtocol(loop)
        self.protocol.connection_made(transport)
        transport.protocol = self.protocol
        self.writer = StreamWriter(self.protocol, loop)

    @property
    def transport(self) -> asyncio.Transport | None:
        return self.protocol.transport

    def client(self, until_s: float = 60.0) -> Client:
        client = Client(cast(Any, self), STALL_S, asyncio.get_running_loop().time() + until_s)
        client._writer = self.writer
        return client


async def test_who_takes_a_little_at_a_time_is_waited_for() -> None:
    request = Request(socket := Socket(take=1))
    client = request.client()
    request.protocol.pause_writing()
    writing = asyncio.ensure_future(client.write(b"x"))
    # Two looks for each `stall_s`.
    await eventually(lambda: socket.looks >= 10 or writing.done())
    assert not writing.done()
    request.protocol.resume_writing()
    await writing
    assert not client.gone
    assert not socket.aborted


async def test_who_takes_nothing_is_cut_and_counts_as_gone() -> None:
    request = Request(socket := Socket(take=0))
    client = request.client()
    left: list[bool] = []
    client.on_leave(lambda: left.append(True))
    request.protocol.pause_writing()
    await client.write(b"x")
    assert client.gone
    assert left == [True]
    assert socket.aborted


async def test_who_takes_a_little_at_a_time_is_cut_at_the_end_of_its_time() -> None:
    request = Request(socket := Socket(take=1))
    client = request.client(until_s=STALL_S * 4)
    request.protocol.pause_writing()
    await client.write(b"x")
    assert client.gone
    assert socket.looks > 2


async def test_two_that_wait_do_not_end_each_other() -> None:
    """A keep-alive may be under way when an event comes."""
    request = Request(socket := Socket(take=1))
    client = request.client()
    request.protocol.pause_writing()
    first, second = (asyncio.ensure_future(client.write(b"x")) for _ in range(2))
    await eventually(lambda: socket.looks >= 10)
    first.cancel()
    await asyncio.wait({first})
    seen = socket.looks
    await eventually(lambda: socket.looks >= seen + 4 or second.done())
    assert not second.done()
    request.protocol.resume_writing()
    await second
    assert not client.gone


async def test_a_connection_that_breaks_while_it_is_waited_for() -> None:
    for error in (None, OSError("no route")):
        request = Request(socket := Socket(take=1))
        client = request.client()
        request.protocol.pause_writing()
        writing = asyncio.ensure_future(client.write(b"x"))
        await eventually(lambda socket=socket: socket.looks >= 1)
        request.protocol.connection_lost(error)
        await writing
        assert client.gone
