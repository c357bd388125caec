"""The client as the relay sees it, and its connection, on aiohttp's own protocol and writer: who takes a little at a time, who
takes nothing, and who goes."""

import asyncio
from collections.abc import Awaitable, Callable
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
        self.written: list[bytes] = []
        self.protocol: BaseProtocol | None = None

    def get_write_buffer_size(self) -> int:
        self.looks += 1
        self.size -= self.take
        return self.size

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self.aborted = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
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


async def served(answer: Callable[[Client], Awaitable[None]], version: str = "1.1") -> Socket:
    """The connection of a client whose request was answered so, by aiohttp's own server; each write is one system call."""
    socket, loop, done = Socket(), asyncio.get_running_loop(), asyncio.Event()

    async def handle(request: Any) -> web.StreamResponse:
        client = Client(request, loop.time() + 60.0)
        await answer(client)
        done.set()
        assert client.response is not None
        return client.response

    server = _Server(handle)
    server.max_connections, server.stall_s = 1, 60.0
    connection = _Protocol(server, loop=loop)
    socket.protocol = connection
    connection.connection_made(socket)
    connection.data_received(f"GET / HTTP/{version}\r\nHost: x\r\n\r\n".encode())
    await eventually(lambda: done.is_set() and (socket.aborted or connection._waiter is not None))
    connection.connection_lost(None)
    return socket


async def test_the_headers_of_a_whole_answer_go_with_it_in_one_write() -> None:
    socket = await served(lambda client: client.answer(200, {"content-type": "application/json"}, b"{}"))
    (written,) = socket.written
    assert written.startswith(b"HTTP/1.1 200 OK\r\n")
    assert written.endswith(b"\r\n\r\n{}")


@pytest.mark.parametrize(
    ("version", "bodies"),
    [
        ("1.1", [b"5\r\nfirst\r\n", b"6\r\nsecond\r\n", b"4\r\nlast\r\n0\r\n\r\n"]),
        ("1.0", [b"first", b"second", b"last"]),
    ],
)
async def test_a_stream_costs_a_write_for_each_part_and_none_for_headers_and_end(
    version: str, bodies: list[bytes]
) -> None:
    async def answer(client: Client) -> None:
        await client.begin(200, {"content-type": "text/event-stream"})
        await client.write(b"first")
        await client.write(b"second")
        await client.end(b"last")

    first, *rest = (await served(answer, version)).written
    headers, _, body = first.partition(b"\r\n\r\n")
    assert headers.startswith(f"HTTP/{version} 200 OK\r\n".encode())
    assert [body, *rest] == bodies


async def test_whoever_is_away_before_the_first_byte_is_gone_before_content_counts() -> None:
    left: list[bool] = []

    async def answer(client: Client) -> None:
        client._request.transport.close()  # type: ignore[union-attr]
        client.on_leave(lambda: left.append(client.begun))
        await client.begin(200, {})
        assert client.gone
        await client.write(b"x")
        await client.end(b"x")

    assert not (await served(answer)).written
    assert left == [True]


async def test_who_has_not_taken_the_last_bytes_when_the_time_is_over_is_cut_and_counts_as_gone() -> None:
    request = Request()
    client = request.client(until_s=0.01)
    left: list[bool] = []
    client.on_leave(lambda: left.append(True))
    await client.end(b"x")
    assert client.gone
    assert left == [True]
    assert request.socket.aborted


async def test_a_connection_that_breaks_while_the_last_bytes_are_taken() -> None:
    request = Request()
    client = request.client()
    ending = asyncio.ensure_future(client.end(b"x"))
    await eventually(lambda: request.protocol._drain_waiter is not None)
    request.protocol.connection_lost(OSError("no route"))
    await ending
    assert client.gone
