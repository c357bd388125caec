"""The bounds of the public listener: connections, and all bodies together. Whoever was there before notices nothing."""

import asyncio
import json
from collections.abc import AsyncIterator

from speedinfer.router.v1.frame_pb2 import Frame
from speedinfer.router.v1.inference_pb2 import GenerateItem

from tests.fakes.scripted_router import accepted, data, end
from tests.unit.edge.conftest import KEY, Make, Stand, eventually

HALF = 100_000


async def well(_item: GenerateItem) -> AsyncIterator[Frame]:
    yield accepted()
    yield data(b'{"id":"c1","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":5}}')
    yield end()


class Slow:
    """A request whose body comes in two halves."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        body = json.dumps(stand.body()).encode()
        self._halves = body + b" " * (HALF - len(body)), b" " * HALF

    async def begin(self) -> None:
        """Send the head and the first half, and wait until the edge has it."""
        before = self._stand.edge._inference._room.held_bytes
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._stand.edge.port)
        self.writer.write(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {2 * HALF}\r\n\r\n".encode()
            + self._halves[0]
        )
        await eventually(lambda: self._stand.edge._inference._room.held_bytes == before + HALF)

    async def finish(self) -> int:
        """Send the rest; the answer's status."""
        self.writer.write(self._halves[1])
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.writer.close()
        return int(head.split(b" ")[1])


async def test_bodies_for_which_there_is_no_room_are_refused_and_the_others_go_on(make_stand: Make) -> None:
    stand = await make_stand(max_body_bytes=2 * HALF, max_bodies_bytes=2 * HALF + 1000)
    stand.router.script = well
    slow = Slow(stand)
    await slow.begin()
    refused = await stand.post(b" " * (HALF + 1001))
    assert (refused.status, refused.error["code"]) == (503, "overloaded")
    assert refused.headers["retry-after"] == "1"
    # Before a byte of it has come.
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.edge.port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (KEY.encode(), HALF + 1001)
    )
    async with asyncio.timeout(5):
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 503 ")
    writer.close()
    # A small one still fits.
    assert (await stand.post()).status == 200
    assert await slow.finish() == 200
    assert stand.edge._inference._room.held_bytes == 0
    assert [call for call in stand.billing.names() if call == "reserve"] == ["reserve", "reserve"]


async def test_nothing_is_kept_of_a_body_without_a_good_key(make_stand: Make) -> None:
    stand = await make_stand(max_body_bytes=2 * HALF, max_bodies_bytes=2 * HALF + 1000)
    stand.router.script = well
    slow = Slow(stand)
    await slow.begin()
    nobody = {"Authorization": "Bearer nobody"}
    # There would be no room for it.
    assert (await stand.post(b" " * (HALF + 1001), headers=nobody)).status == 401
    # What is wrong with a body goes before what is wrong with the key.
    assert (await stand.post(b" " * (2 * HALF + 1), headers=nobody)).status == 413
    assert await slow.finish() == 200


async def test_of_bodies_that_grow_together_some_are_refused_and_all_room_comes_back(make_stand: Make) -> None:
    stand = await make_stand(max_body_bytes=3 * HALF, max_bodies_bytes=3 * HALF)
    stand.router.script = well
    first, second = Slow(stand), Slow(stand)
    await first.begin()
    await second.begin()
    # Of the three halves that fit, two are taken: the rest of one fits, and when it is done so does that of the other.
    assert await first.finish() == 200
    third = Slow(stand)
    await third.begin()
    statuses = await asyncio.gather(second.finish(), third.finish())
    assert set(statuses) <= {200, 503}
    assert 200 in statuses
    await eventually(lambda: stand.edge._inference._room.held_bytes == 0)


async def test_a_body_that_is_broken_off_gives_its_room_back(make_stand: Make) -> None:
    stand = await make_stand()
    slow = Slow(stand)
    await slow.begin()
    slow.writer.transport.abort()
    await eventually(lambda: stand.edge._inference._room.held_bytes == 0)
    assert stand.router.items == []


async def test_one_connection_too_many_is_told_so_and_closed(make_stand: Make) -> None:
    stand = await make_stand(max_connections=3, max_bodies_bytes=32 * 1024 * 1024)
    stand.router.script = well
    slow = Slow(stand)
    await slow.begin()
    idle = [await asyncio.open_connection("127.0.0.1", stand.edge.port) for _ in range(2)]
    await eventually(lambda: len(stand.edge._runners[-1].server.connections) == 3)
    for _ in range(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", stand.edge.port)
        async with asyncio.timeout(5):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 1" in head
        assert b"\r\nconnection: close" in head
        assert json.loads(body)["error"]["code"] == "overloaded"
    assert stand.metric("connections_refused_total") == 5
    # Operators come in all the same.
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.edge.admin_port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()
    # Those that were there go on, and who leaves makes room.
    assert await slow.finish() == 200
    for _, each in idle:
        each.close()
    await eventually(lambda: not stand.edge._runners[-1].server.connections)
    assert (await stand.post()).status == 200


async def test_a_connection_that_sends_no_head_in_time_is_closed(make_stand: Make) -> None:
    stand = await make_stand(idle_connection_s=0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.edge.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    writer.close()


async def test_a_head_has_a_bound_as_a_whole(stand: Stand) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.edge.port)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"y" * 8000) for n in range(5)))
    async with asyncio.timeout(5):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
    writer.close()


async def unread(stand: Stand) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection with more answers than the system holds, none of which is read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.edge.port, limit=1024)
    before = stand.edge._runners[-1].server
    writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 2000)
    await eventually(lambda: any(each.writing_paused for each in before.connections))
    return reader, writer


async def test_who_takes_nothing_of_any_answer_is_cut(make_stand: Make) -> None:
    stand = await make_stand(reader_stall_s=0.1)
    _, writer = await unread(stand)
    await eventually(lambda: not stand.edge._runners[-1].server.connections)
    writer.close()


async def test_an_edge_that_leaves_does_not_wait_for_who_takes_a_little_at_a_time(make_stand: Make) -> None:
    stand = await make_stand(reader_stall_s=1.0, idle_connection_s=0.1)
    reader, writer = await unread(stand)
    leaving = asyncio.ensure_future(stand.edge.linger(asyncio.Event()))
    while not leaving.done():
        await reader.read(1024)
        await asyncio.wait({leaving}, timeout=0.05)
    assert stand.edge._runners[-1].server.connections
    writer.close()
