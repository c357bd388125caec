"""The edge's side of the relay: several routers, readers that stop, routers that die, drain, join, and speak otherwise."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from speedinfer.router.v1 import relay_pb2, relay_pb2_grpc
from speedinfer.router.v1.frame_pb2 import Frame
from speedinfer.router.v1.inference_pb2 import GenerateItem

from services.edge import addresses
from services.router import relay_session
from tests.fakes.scripted_router import ScriptedRouter, accepted, data, end
from tests.harness.kept import instances, keepers
from tests.harness.ports import free_port
from tests.unit.edge.conftest import Fleet, Stand, eventually, known

HELLO = b'{"choices":[{"index":0,"delta":{"content":"Hello"}}]}'
BIG = b'{"choices":[{"index":0,"delta":{"content":"%b"}}]}' % (b"x" * 30_000)


class Paced:
    """A router's script: `accepted`, a word, and the end once `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun = 0

    async def __call__(self, _item: GenerateItem) -> AsyncIterator[Frame]:
        self.begun += 1
        yield accepted()
        yield data(HELLO)
        await self.go.wait()
        yield end()


async def streams(stand: Stand, count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """So many streams, each with its first word."""
    found = [await stand.open_raw(stand.body(stream=True)) for _ in range(count)]
    for reader, _ in found:
        await reader.readuntil(b"Hello")
    return found


async def finished(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    rest = await reader.readuntil(b"0\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return rest


async def test_requests_go_over_one_call(fleet: Fleet) -> None:
    router = ScriptedRouter()
    script = router.script = Paced()
    stand = await fleet(router)
    held = await streams(stand, 5)
    assert [len(each) for each in router.relay._sessions] == [5]
    assert stand.metric("relay_links") == 1
    assert stand.metric("relay_open", router=known(stand)[0].address) == 5
    script.go.set()
    for each in held:
        assert b"[DONE]" in await finished(*each)
    assert known(stand)[0].open == 0


async def test_a_stalled_reader_stops_only_its_own_upstream(fleet: Fleet) -> None:
    router = ScriptedRouter()
    sent: dict[str, int] = {}

    async def script(item: GenerateItem) -> AsyncIterator[Frame]:
        name = item.context.request_id
        yield accepted()
        for number in range(1, 301):
            sent[name] = number
            yield data(BIG)
        yield end()

    router.script = script
    stand = await fleet(router)
    _, stalled = await stand.open_raw(stand.body(stream=True))
    await eventually(lambda: sent)
    (slow,) = sent
    for answer in await asyncio.gather(*(stand.post(stand.body(stream=True)) for _ in range(3))):
        assert answer.events.count(BIG.decode()) == 300
        assert answer.events[-1] == "[DONE]"
    # 9 MB are its answer; windows, the system's buffers and ours take some 1.5 MB.
    assert sent[slow] < 80
    assert {count for name, count in sent.items() if name != slow} == {300}
    stalled.close()
    await eventually(lambda: known(stand)[0].open == 0)


async def test_beyond_what_a_router_takes_only_the_excess_is_refused_and_nothing_of_it_charged(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_session, "MAX_OPEN", 3)
    router = ScriptedRouter()
    script = router.script = Paced()
    stand = await fleet(router)
    held = await streams(stand, 3)
    for stream in (True, False):
        async with asyncio.timeout(10):
            answer = await stand.post(stand.body(stream=stream))
        assert answer.status == 503
        assert answer.error["code"] == "overloaded"
        assert answer.error["message"] == "The router is at its bound of open requests. Try again."
        assert answer.headers["retry-after"] == "1"
    await eventually(lambda: stand.billing.names().count("release") == 2)
    assert sorted(hold.cause for hold in stand.billing.holds.values()) == ["", "", "", "overloaded", "overloaded"]
    assert script.begun == 3
    script.go.set()
    for each in held:
        assert b"[DONE]" in await finished(*each)
    assert (await stand.post(stand.body(stream=True))).events[-1] == "[DONE]"
    assert stand.billing.names().count("settle") == 4
    assert stand.metric("relay_links") == 1, "the link is none the worse for it"


async def test_a_wait_for_a_place_beyond_what_a_router_takes_is_refused_before_a_hold(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_session, "MAX_OPEN", 0)
    router = ScriptedRouter()
    for each in router.workers:
        each.max_concurrency = 1
    stand = await fleet(router)
    answer = await stand.post(stand.body())
    assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (503, "overloaded", "1")
    assert stand.billing.names() == []
    assert router.items == []


async def test_two_routers_share_evenly_and_a_killed_one_takes_only_its_own(fleet: Fleet) -> None:
    first, second = ScriptedRouter("router-1"), ScriptedRouter("router-2")
    scripts = [Paced(), Paced()]
    first.script, second.script = scripts
    stand = await fleet(first, second)
    held = await streams(stand, 6)
    assert [script.begun for script in scripts] == [3, 3]
    await first.stop()
    lost = await eventually(
        lambda: [each for each in held if each[0].at_eof() or b"error" in bytes(each[0]._buffer)][2:]
    )  # type: ignore[attr-defined]
    assert lost
    broken = [each for each in held if b"error" in bytes(each[0]._buffer)]  # type: ignore[attr-defined]
    assert len(broken) == 3
    for each in broken:
        rest = await finished(*each)
        assert b"upstream_error" in rest
        assert b"[DONE]" not in rest
    held = [each for each in held if each not in broken] + await streams(stand, 2)
    assert scripts[1].begun == 5
    scripts[1].go.set()
    for each in held:
        assert b"[DONE]" in await finished(*each)
    # A failed request's client does not wait for the release.
    await eventually(lambda: stand.billing.names().count("release") == 3)
    assert sorted(stand.billing.names()) == ["release"] * 3 + ["reserve"] * 8 + ["settle"] * 5


async def test_a_router_that_joins_gets_its_share(fleet: Fleet) -> None:
    first, second = ScriptedRouter("router-1"), ScriptedRouter("router-2")
    scripts = [Paced(), Paced()]
    first.script, second.script = scripts
    port = free_port()
    stand = await fleet(first, also=f"127.0.0.1:{port}")
    held = await streams(stand, 2)
    assert [script.begun for script in scripts] == [2, 0]
    await second.start(port)
    try:
        await eventually(lambda: all(each.watched and each.is_ready for each in known(stand)))
        held += await streams(stand, 2)
        assert [script.begun for script in scripts] == [2, 2], "who has less open gets more"
        for script in scripts:
            script.go.set()
        for each in held:
            assert b"[DONE]" in await finished(*each)
    finally:
        await second.stop()


async def test_a_router_that_drains_finishes_what_it_has_and_gets_nothing_new(fleet: Fleet) -> None:
    first, second = ScriptedRouter("router-1"), ScriptedRouter("router-2")
    scripts = [Paced(), Paced()]
    first.script, second.script = scripts
    stand = await fleet(first, second)
    held = await streams(stand, 2)
    first.relay.leave()
    await eventually(lambda: not known(stand)[0].is_ready)
    held += await streams(stand, 3)
    assert [script.begun for script in scripts] == [1, 4]
    for script in scripts:
        script.go.set()
    for each in held:
        assert b"[DONE]" in await finished(*each)
    await eventually(lambda: not any(map(len, first.relay._sessions)))


async def test_a_model_is_asked_only_of_a_router_that_knows_it(fleet: Fleet) -> None:
    first, second = ScriptedRouter("router-1"), ScriptedRouter("router-2")
    scripts = [Paced(), Paced()]
    first.script, second.script = scripts
    first.workers = []
    stand = await fleet(first, second)
    for script in scripts:
        script.go.set()
    for _ in range(3):
        assert (await stand.post(stand.body(stream=True))).events[-1] == "[DONE]"
    assert [script.begun for script in scripts] == [0, 3]
    assert (await stand.get("/health")).json["workers"][0]["worker_id"] == "worker-1"


@pytest.mark.parametrize(("relays", "setting"), [(True, True), (True, False), (False, True)])
async def test_the_client_reads_the_same_bytes_either_way(fleet: Fleet, relays: bool, setting: bool) -> None:
    router = ScriptedRouter(relays=relays)

    async def script(item: GenerateItem) -> AsyncIterator[Frame]:
        yield accepted()
        yield data(b'{"choices":[{"index":0,"delta":{"role":"assistant"}}]}', content=False)
        for number in range(20):
            yield data(b'{"n":%d}' % number, BIG[:-1] + b',"n":%d}' % number)
        yield data(b'{"big":"%b"}' % (b"y" * 300_000))
        yield end()

    router.script = script
    stand = await fleet(router, relay=setting)
    answer = await stand.post(stand.body(stream=True, stream_options={"include_usage": False}))
    expected = ['{"choices":[{"index":0,"delta":{"role":"assistant"}}]}']
    for number in range(20):
        expected += [f'{{"n":{number}}}', BIG.decode()[:-1] + f',"n":{number}}}']
    assert answer.events == [*expected, '{"big":"%s"}' % ("y" * 300_000), "[DONE]"]
    assert known(stand)[0].is_linked is (relays and setting)


async def test_a_large_request_goes_by_a_call_of_its_own(fleet: Fleet) -> None:
    router = ScriptedRouter()
    script = router.script = Paced()
    script.go.set()
    stand = await fleet(router)
    prompt = "z" * 400_000
    answer = await stand.post(stand.body(stream=True, messages=[{"role": "user", "content": prompt}]))
    assert answer.events[-1] == "[DONE]"
    assert prompt.encode() in router.items[0].members[0].json
    # No frame of it came over the relay.
    assert router.metrics.registry.get_sample_value("speedinfer_router_relay_frames_per_message_sum") == 0


@pytest.mark.parametrize("relay", [True, False])
async def test_an_open_stream_keeps_nothing_of_its_prompt(fleet: Fleet, relay: bool) -> None:
    router = ScriptedRouter()
    go = asyncio.Event()

    async def script(item: GenerateItem) -> AsyncIterator[Frame]:
        del item
        router.items.clear()
        yield accepted()
        yield data(HELLO)
        await go.wait()
        yield end()

    router.script = script
    stand = await fleet(router, relay=relay)
    asked = stand.body(stream=True, messages=[{"role": "user", "content": "kept-words " * 9_000}])
    reader, writer = await stand.open_raw(asked)
    await reader.readuntil(b"Hello")
    del asked
    # Of a call of its own gRPC, and the router, keep the message.
    mine = [each for each in keepers("kept-words") if relay or each != "GenerateItem"]
    assert mine == []
    # Nor of what came: a frame would keep the whole message that it came in.
    if relay:
        await eventually(lambda: not instances(Frame))
    go.set()
    assert b"[DONE]" in await finished(reader, writer)


async def test_each_address_of_a_name_is_a_router_and_one_that_leaves_the_name_gets_nothing_new(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = ["127.0.0.1", "127.0.0.2"]
    ask = socket.getaddrinfo

    def look_up(host: Any, port: Any, *others: Any, **named: Any) -> Any:
        if host != "routers.test":
            return ask(host, port, *others, **named)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in hosts]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(addresses, "LOOK_UP_EVERY_S", 0.02)
    first, second, other = ScriptedRouter("router-1"), ScriptedRouter("router-2"), ScriptedRouter("router-3")
    scripts = [Paced(), Paced()]
    first.script, second.script = scripts
    other.workers = []
    await first.start()
    await second.start(first.port, "127.0.0.2")
    try:
        stand = await fleet(other, also=f"routers.test:{first.port}")
        await eventually(lambda: [each.watched and each.is_ready for each in known(stand)] == [True] * 3)
        held = await streams(stand, 4)
        assert [script.begun for script in scripts] == [2, 2]
        gone = known(stand)[1]
        hosts.remove("127.0.0.1")
        await eventually(lambda: gone.retired)
        held += await streams(stand, 3)
        assert [script.begun for script in scripts] == [2, 5]
        for script in scripts:
            script.go.set()
        for each in held:
            assert b"[DONE]" in await finished(*each)
        await eventually(lambda: not stand.edge._routers._retired)
    finally:
        await first.stop()
        await second.stop()


async def test_what_is_no_name_stands_for_itself_and_a_name_without_an_address_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def look_up(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_AGAIN, "no name server")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    for target in ("10.0.0.5:50051", "[::1]:50051", "unix:/run/router.sock", "dns:///router:50051", "localhost:50051"):
        assert await addresses.look_up(target) == [target]
    assert await addresses.look_up("no-such-name.invalid:50051") == []


async def test_what_no_name_server_can_be_asked_for_has_no_address() -> None:
    for host in ("router..internal", f"{'r' * 64}.internal"):
        assert await addresses.look_up(f"{host}:50051") == []


class Foreign(relay_pb2_grpc.RelayServiceServicer):
    """A router that speaks another protocol."""

    async def Relay(
        self, request_iterator: AsyncIterator[relay_pb2.RelayRequest], _context: grpc.aio.ServicerContext
    ) -> AsyncIterator[relay_pb2.RelayResponse]:
        async for _ in request_iterator:
            yield relay_pb2.RelayResponse(hello=relay_pb2.RouterHello(protocol=2, router_id="foreign"))


async def test_a_router_of_another_protocol_is_refused_and_said(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign, second = ScriptedRouter("foreign"), ScriptedRouter("router-2")
    foreign.relay = Foreign()  # type: ignore[assignment]
    script = second.script = Paced()
    script.go.set()
    await foreign.start()
    try:
        stand = await fleet(second, also=f"127.0.0.1:{foreign.port}")
        said = ""

        def look() -> bool:
            nonlocal said
            said += capsys.readouterr().out
            return "the router speaks the relay's protocol 2, this edge 1" in said

        await eventually(look)
        assert not known(stand)[1].is_ready
        assert (await stand.post(stand.body(stream=True))).events[-1] == "[DONE]"
        assert foreign.items == []
    finally:
        await foreign.stop()
