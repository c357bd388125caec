"""Many requests on one call: each is served as on a call of its own, and none is touched by what becomes of another."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from speedinfer.common.v1 import context_pb2
from speedinfer.router.v1 import inference_pb2
from speedinfer.router.v1.relay_pb2 import RelayCommand, RelayRefusalReason

from services.common import relay_terms
from tests.contract.router.gateway import MODEL, Gateway, item, running
from tests.contract.router.relay_caller import RelayCaller, relay
from tests.fakes import scripts
from tests.fakes.worker import FakeWorker

PIECE = "x" * 1000
PIECES = 400


@pytest.fixture
async def caller(gateway: Gateway, worker: FakeWorker) -> AsyncIterator[RelayCaller]:
    await gateway.register(worker.url)
    async with relay(gateway.channel) as caller:
        await caller.until(lambda: caller.hello)
        yield caller


def long_answer(pieces: int = PIECES) -> list[scripts.Step]:
    return scripts.chat_stream(MODEL, [PIECE] * pieces, scripts.usage(3, pieces))


def half_and_half(go: asyncio.Event) -> list[scripts.Step]:
    """ "a", and once `go` is set "b" and the end."""
    first, last = scripts.delta(MODEL, content="a"), scripts.delta(MODEL, content="b", finish_reason="stop")
    counts = scripts.frame(MODEL, choices=[], usage=scripts.usage(3, 2))
    return scripts.stream(first, scripts.WaitFor(go), last, counts)


async def test_requests_share_a_call_and_its_messages(caller: RelayCaller, worker: FakeWorker) -> None:
    worker.scripts[MODEL] = scripts.chat_stream(MODEL, ["a", "b", "c"], scripts.usage(3, 3))
    for number in range(1, 21):
        await caller.start(number, item())
    for number in range(1, 21):
        answer = await caller.whole(number)
        assert (answer.text, answer.counts) == ("abc", (3, 3))
    assert max(caller.messages) > 1, "what became ready together went together"


async def test_a_reader_that_gives_nothing_back_stops_only_its_own_worker(
    caller: RelayCaller, gateway: Gateway, worker: FakeWorker
) -> None:
    worker.scripts[MODEL] = long_answer()
    await caller.start(1, item())
    for number in range(2, 7):
        await caller.start(number, item(), credit_bytes=relay_terms.MAX_CREDIT_BYTES)
    for number in range(2, 7):
        assert (await caller.whole(number)).text == PIECE * PIECES
    stalled = caller.answer(1)
    assert stalled.end is None
    # The window, and what may have been read ahead: 64 KiB and what one read of the socket brings.
    assert sum(map(len, stalled.payloads)) < 350_000
    assert gateway.worker().in_flight == 1
    while not caller.answer(1).end:
        before = len(caller.events[1])
        await caller.credit(1, relay_terms.WINDOW_BYTES)
        await caller.until(lambda before=before: len(caller.events[1]) > before)  # type: ignore[misc]
    assert caller.answer(1).text == PIECE * PIECES


async def test_without_credit_nothing_is_sent(caller: RelayCaller, worker: FakeWorker) -> None:
    worker.scripts[MODEL] = long_answer(3)
    await caller.start(1, item(), credit_bytes=1)
    await caller.start(2, item())
    await caller.whole(2)
    await caller.until(lambda: caller.events[1])
    assert caller.answer(1).end is None
    await caller.credit(1, 1_000_000)
    assert (await caller.whole(1)).text == PIECE * 3


async def test_a_cancel_drops_its_worker_and_no_other(
    caller: RelayCaller, gateway: Gateway, worker: FakeWorker
) -> None:
    go = asyncio.Event()
    worker.scripts[MODEL] = half_and_half(go)
    await caller.start(1, item())
    await caller.start(2, item())
    await caller.until(lambda: caller.answer(1).payloads and caller.answer(2).payloads)
    await caller.cancel(1)
    async with asyncio.timeout(5):
        while gateway.worker().in_flight != 1:
            await gateway.worker().load.changed()
    before = len(caller.events[1])
    go.set()
    assert (await caller.whole(2)).text == "ab"
    assert len(caller.events[1]) == before


async def test_what_is_not_open_is_ignored(caller: RelayCaller, worker: FakeWorker) -> None:
    await caller.credit(7, 100)
    await caller.cancel(9)
    await caller.say(RelayCommand(number=11))
    worker.scripts[MODEL] = long_answer(1)
    await caller.start(12, item())
    assert (await caller.whole(12)).text == PIECE


async def test_a_ping_is_answered_at_once_whatever_requests_wait_for(caller: RelayCaller, worker: FakeWorker) -> None:
    assert caller.hello is not None
    assert caller.hello.answers_pings
    worker.scripts[MODEL] = [scripts.Hang()]
    await caller.start(1, item())
    await worker.received(1)
    for pongs in (1, 2):
        await caller.ping()
        await caller.until(lambda pongs=pongs: caller.pongs == pongs)  # type: ignore[misc]
    assert caller.events == {}


@pytest.mark.parametrize("broken", ["same", "lower", "credit"])
async def test_a_breach_of_the_protocol_ends_the_call_alone(
    caller: RelayCaller, gateway: Gateway, worker: FakeWorker, broken: str
) -> None:
    worker.scripts[MODEL] = [*long_answer(1)[:1], scripts.Hang()]
    async with relay(gateway.channel) as other:
        await caller.start(5, item())
        await other.start(1, item())
        await worker.received(2)
        if broken == "credit":
            await caller.credit(5, relay_terms.MAX_CREDIT_BYTES)
        else:
            await caller.start(5 if broken == "same" else 4, item())
        assert await caller.until(lambda: caller.code) is grpc.StatusCode.INVALID_ARGUMENT
        async with asyncio.timeout(5):
            while gateway.worker().in_flight != 1:
                await gateway.worker().load.changed()
        assert other.code is None


async def test_another_protocol_is_refused_by_name(gateway: Gateway) -> None:
    async with relay(gateway.channel, protocol=2) as caller:
        assert await caller.until(lambda: caller.code) is grpc.StatusCode.INVALID_ARGUMENT
        assert "protocol 2 is not known here; this router's is 1" in await caller.call.details()


async def test_an_item_that_no_router_takes_is_refused_by_itself(caller: RelayCaller, worker: FakeWorker) -> None:
    wrong = item(output_limit=0)
    await caller.start(1, wrong)
    worker.scripts[MODEL] = long_answer(1)
    await caller.start(2, item())
    assert await caller.refused(1) == RelayRefusalReason.RELAY_REFUSAL_REASON_INVALID
    assert (await caller.whole(2)).text == PIECE


async def test_an_edge_that_dies_drops_all_its_workers(
    caller: RelayCaller, gateway: Gateway, worker: FakeWorker
) -> None:
    worker.scripts[MODEL] = [*long_answer(1)[:1], scripts.Hang()]
    for number in range(1, 6):
        await caller.start(number, item())
    await worker.received(5)
    await caller.close()
    await gateway.until_free()


async def test_a_large_answer_goes_in_parts_and_lets_others_pass(caller: RelayCaller, worker: FakeWorker) -> None:
    text = "y" * 3_000_000
    worker.scripts[MODEL] = [scripts.json_answer(scripts.chat_whole(MODEL, text, scripts.usage(3, 4)))]
    await caller.start(1, item(stream=False))
    await caller.until(lambda: caller.events[1][1:])
    worker.scripts[MODEL] = long_answer(1)
    await caller.start(2, item())
    assert (await caller.whole(2)).text == PIECE
    for _ in range(60):
        await caller.credit(1, 60_000)
    answer = await caller.whole(1)
    assert answer.kinds == ["accepted", "data", "end"]
    assert text.encode() in answer.payloads[0]
    assert sum(event.HasField("part") for event in caller.events[1]) > 40


async def test_a_place_is_kept_for_its_request_and_given_back_with_a_cancel(tmp_path: Path, worker: FakeWorker) -> None:
    worker.scripts[MODEL] = long_answer(1)
    async with running(tmp_path / "data", drain_s=2.0) as gateway, relay(gateway.channel) as caller:
        await gateway.register(worker.url, config={"max_concurrency": 1})
        asked = item()
        hold = inference_pb2.HoldPlaceRequest(context=asked.context, model=MODEL, party="a")
        other = inference_pb2.HoldPlaceRequest(
            context=context_pb2.RequestContext(request_id="other"), model=MODEL, party="b"
        )
        await caller.say(RelayCommand(number=1, hold_place=hold), RelayCommand(number=2, hold_place=other))
        await caller.until(lambda: caller.events[1])
        assert caller.events[1][0].place.place.worker_id == "w1"
        assert not caller.events[2]
        await caller.start(3, asked)
        assert (await caller.whole(3)).text == PIECE
        await caller.until(lambda: caller.events[2])
        assert gateway.worker().in_flight == 1
        await caller.cancel(2)
        await gateway.until_free()


async def test_a_router_that_drains_says_so_and_finishes_what_runs(
    caller: RelayCaller, gateway: Gateway, worker: FakeWorker
) -> None:
    go = asyncio.Event()
    worker.scripts[MODEL] = half_and_half(go)
    await caller.start(1, item())
    await caller.until(lambda: caller.answer(1).payloads)
    draining = asyncio.ensure_future(gateway.router.drain())
    await caller.until(lambda: caller.draining)
    await caller.start(2, item())
    assert await caller.refused(2) == RelayRefusalReason.RELAY_REFUSAL_REASON_TURNED_AWAY
    go.set()
    assert (await caller.whole(1)).text == "ab"
    await caller.call.done_writing()
    await draining
    # The router has said so; this end reads it in its own time.
    assert await caller.until(lambda: caller.code) is grpc.StatusCode.OK
