"""The client as the relay sees it, and its connection, on aiohttp's own protocol and writer: who takes a little at a time, who
takes nothing, and who goes."""

import asyncio
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import StreamWriter

from services.edge.client import Client
from services.edge.http_connections import _Protocol, _Server
from tests.unit.edge.conftest import eventually

STALL_S = 0.005


class Socket(asyncio.Transport):
    """A transport of which `take` bytes leave the buffer between two looks."""

    def __init__(self, take: int = 0) -> None:
        super().__init__()
        self.take = take
        self.size = 100_000
        self.looks = 0
        self.aborted = False
        self.protocol: BaseProtocol | None = None

    def get_write_buffer_size(self) -> int:
        self.looks += 1
        self.size -= self.take
        return self.size

    def write(self, data: Any) -> None:
        pass

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True
        if self.protocol is not None:
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


class Request:
    """As much of a request as a client that has begun looks at; its client takes nothing."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.socket = Socket()
        self.protocol = self.socket.protocol = BaseProtocol(loop)
        self.protocol.connection_made(self.socket)
        self.writer = StreamWriter(self.protocol, loop)
        self.protocol.pause_writing()

    @property
    def transport(self) -> asyncio.Transport | None:
        return self.protocol.transport

    def client(self, until_s: float = 60.0) -> Client:
        client = Client(cast(Any, self), asyncio.get_running_loop().time() + until_s)
        client._writer = self.writer
        return client


async def test_who_has_not_taken_it_when_the_time_is_over_is_cut_and_counts_as_gone() -> None:
    request = Request()
    client = request.client(until_s=0.01)
    left: list[bool] = []
    client.on_leave(lambda: left.append(True))
    await client.write(b"x")
    assert client.gone
    assert left == [True]
    assert request.socket.aborted


async def test_two_that_wait_do_not_end_each_other() -> None:
    """A keep-alive may be under way when an event comes."""
    request = Request()
    client = request.client()
    first, second = (asyncio.ensure_future(client.write(b"x")) for _ in range(2))
    await eventually(lambda: request.protocol._drain_waiter is not None)
    first.cancel()
    await asyncio.wait({first})
    third = asyncio.ensure_future(client.write(b"x"))
    done, _ = await asyncio.wait({second, third}, timeout=0.02)
    assert not done
    request.protocol.resume_writing()
    await asyncio.gather(second, third)
    assert not client.gone


@pytest.mark.parametrize("error", [None, OSError("no route")])
async def test_a_connection_that_breaks_while_it_is_waited_for(error: OSError | None) -> None:
    request = Request()
    client = request.client()
    writing = asyncio.ensure_future(client.write(b"x"))
    await eventually(lambda: request.protocol._drain_waiter is not None)
    request.protocol.connection_lost(error)
    await writing
    assert client.gone


def watched(socket: Socket) -> _Protocol:
    """A connection of which something waits to be taken."""

    async def nobody(_request: Any) -> web.StreamResponse:
        raise AssertionError("no request is made")

    server = _Server(nobody)
    server.stall_s = STALL_S
    connection = _Protocol(server, loop=asyncio.get_running_loop())
    connection._own = socket
    connection.pause_writing()
    return connection


async def test_a_connection_of_which_a_little_is_taken_at_a_time_is_kept() -> None:
    socket = Socket(take=1)
    connection = watched(socket)
    await eventually(lambda: socket.looks >= 10 or socket.aborted)
    connection.resume_writing()
    assert not socket.aborted
    # Nothing waits any more, so nothing is watched.
    assert connection._stall is None


async def test_a_connection_of_which_nothing_is_taken_is_cut() -> None:
    socket = Socket()
    watched(socket)
    await eventually(lambda: socket.aborted)
