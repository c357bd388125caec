"""What a router keeps for one edge is bounded: what waits to be sent, and how much is open. What is given up ends at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from speedinfer.router.v1 import inference_pb2
from speedinfer.router.v1.relay_pb2 import RelayCommand, RelayRefusalReason

from services.common import relay_terms, rpc
from services.router import reading, relay_session
from services.router.relay_session import MAX_WAITING_BYTES, RelaySession
from tests.contract.router.gateway import MODEL, Gateway, item
from tests.contract.router.relay_caller import RelayCaller, relay
from tests.fakes import scripts
from tests.fakes.worker import FakeWorker
from tests.harness.kept import keepers

PIECE = "x" * 4_000
PIECES = 500
REQUESTS = 8
TOO_MANY = RelayRefusalReason.RELAY_REFUSAL_REASON_TOO_MANY
TURNS = 20


@asynccontextmanager
async def edge(gateway: Gateway) -> AsyncIterator[RelayCaller]:
    """A relay over a connection of its own, as each edge has one."""
    options = [*rpc.CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(gateway.target, options=options) as channel, relay(channel) as caller:
        await caller.until(lambda: caller.hello)
        yield caller


def only_session(gateway: Gateway) -> RelaySession:
    """The router's side of the one link there is."""
    (session,) = gateway.router._relay._sessions
    return session


async def until(gateway: Gateway, count: int) -> None:
    """Wait until so many requests run on the worker."""
    async with asyncio.timeout(10):
        while gateway.worker().in_flight != count:
            await gateway.worker().load.changed()


def numbered(pieces: int) -> list[str]:
    """Pieces of text that can be told apart."""
    return [f"{number:06}{PIECE}" for number in range(pieces)]


async def test_what_waits_for_a_slow_edge_is_bounded_and_its_requests_alone_stop_reading(
    gateway: Gateway, worker: FakeWorker
) -> None:
    await gateway.register(worker.url)
    worker.scripts[MODEL] = scripts.chat_stream(MODEL, numbered(PIECES), scripts.usage(3, PIECES))
    text = "".join(numbered(PIECES))
    async with edge(gateway) as slow:
        session = only_session(gateway)
        async with edge(gateway) as other:
            slow.reads.clear()
            for number in range(1, REQUESTS + 1):
                await slow.start(number, item(), credit_bytes=relay_terms.MAX_CREDIT_BYTES)
            async with asyncio.timeout(30):
                while len(session._crowded) < REQUESTS:
                    await asyncio.sleep(0)
            # Each may have had one batch in hand when the bound was reached: what is read ahead, and a read of the socket.
            batch = reading.BUFFER_BYTES + 2 * 64 * 1024
            assert MAX_WAITING_BYTES <= session._outgoing.waiting_bytes < MAX_WAITING_BYTES + REQUESTS * batch
            assert session._outgoing.waiting_bytes < REQUESTS * len(text) / 2, (
                "the answers are far longer than the bound"
            )
            assert gateway.worker().in_flight == REQUESTS
            # Another edge's requests to the same worker go on all the while.
            for number in range(1, 4):
                await other.start(number, item(), credit_bytes=relay_terms.MAX_CREDIT_BYTES)
                assert (await other.whole(number)).text == text
            assert len(session._crowded) == REQUESTS
        slow.reads.set()
        for number in range(1, REQUESTS + 1):
            answer = await slow.whole(number)
            assert answer.text == text
            assert answer.counts == (3, PIECES)
        assert session._outgoing.waiting_bytes == 0


async def test_beyond_so_many_open_on_one_link_only_the_excess_is_refused(
    gateway: Gateway, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_session, "MAX_OPEN", 3)
    await gateway.register(worker.url)
    go = asyncio.Event()
    last = scripts.delta(MODEL, content="b", finish_reason="stop")
    counts = scripts.frame(MODEL, choices=[], usage=scripts.usage(3, 2))
    worker.scripts[MODEL] = scripts.stream(scripts.delta(MODEL, content="a"), scripts.WaitFor(go), last, counts)
    async with edge(gateway) as full, edge(gateway) as other:
        for number in (1, 2, 3):
            await full.start(number, item())
        await full.until(lambda: all(full.answer(number).payloads for number in (1, 2, 3)))
        asked = item()
        hold = inference_pb2.HoldPlaceRequest(context=asked.context, model=MODEL, party="a")
        await full.start(4, asked)
        await full.say(RelayCommand(number=5, hold_place=hold))
        assert await full.refused(4) == TOO_MANY
        assert await full.refused(5) == TOO_MANY
        # The bound is of a link: another edge is not touched by it.
        await other.start(1, item())
        await other.until(lambda: other.answer(1).payloads)
        assert len(worker.requests) == 4
        go.set()
        for number in (1, 2, 3):
            assert (await full.whole(number)).text == "ab"
        assert (await other.whole(1)).text == "ab"
        # What ended made room.
        await full.start(6, item())
        assert (await full.whole(6)).text == "ab"
        assert full.code is None


async def test_an_open_stream_keeps_its_prompt_until_no_other_worker_can_get_it(
    gateway: Gateway, worker: FakeWorker
) -> None:
    await gateway.register(worker.url)
    go, end = asyncio.Event(), asyncio.Event()
    word = scripts.delta(MODEL, content="a", finish_reason="stop")
    counts = scripts.frame(MODEL, choices=[], usage=scripts.usage(3, 2))
    role = scripts.delta(MODEL, role="assistant", content="")
    worker.scripts[MODEL] = scripts.stream(role, scripts.WaitFor(go), word, scripts.WaitFor(end), counts)
    async with edge(gateway) as caller:
        await caller.start(
            1, item(members=[("messages", b'[{"role": "user", "content": "%b"}]' % (b"kept-words " * 9_000))])
        )
        await caller.until(lambda: caller.answer(1).accepted)
        worker.requests.clear()
        # The test's own worker keeps what it got.
        assert [each for each in keepers("kept-words") if each not in ("Received", "coroutine")]
        go.set()
        await caller.until(lambda: caller.answer(1).payloads)
        assert [each for each in keepers("kept-words") if each != "Received"] == []
        end.set()
        assert (await caller.whole(1)).counts == (3, 2)


@pytest.mark.parametrize("waits_for", ["worker", "credit", "way"])
async def test_a_cancel_frees_the_worker_within_some_turns_of_the_loop_whatever_the_request_waits_for(
    gateway: Gateway, worker: FakeWorker, waits_for: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await gateway.register(worker.url)
    steps = scripts.chat_stream(MODEL, numbered(PIECES), scripts.usage(3, PIECES))
    worker.scripts[MODEL] = [*(steps[:2] if waits_for == "worker" else steps[:-1]), scripts.Hang()]
    async with edge(gateway) as caller:
        session = only_session(gateway)
        if waits_for == "way":
            monkeypatch.setattr(relay_session, "MAX_WAITING_BYTES", 0)
        credit = relay_terms.MAX_CREDIT_BYTES if waits_for == "way" else relay_terms.WINDOW_BYTES
        await caller.start(1, item(), credit_bytes=credit)
        await worker.received(1)
        opened = session._open[1]
        async with asyncio.timeout(10):
            while not {
                "worker": opened.running is not None and caller.events[1],
                "credit": opened.room is not None,
                "way": session._crowded,
            }[waits_for]:
                await asyncio.sleep(0)
        # As `take` does with the edge's word, and with no time for anything else to help.
        session._obey(RelayCommand(number=1, cancel={}))
        for _turn in range(TURNS):
            await asyncio.sleep(0)
        assert gateway.worker().in_flight == 0
        assert len(session) == 0
        assert not session._crowded
        async with asyncio.timeout(5):
            await worker.requests[0].disconnected.wait()


async def test_one_that_is_cancelled_before_its_first_step_leaves_nothing(gateway: Gateway, worker: FakeWorker) -> None:
    await gateway.register(worker.url)
    async with edge(gateway) as caller:
        session = only_session(gateway)
        start = RelayCommand(number=1)
        start.start.item.CopyFrom(item())
        start.start.credit_bytes = 65_536
        await caller.say(start, RelayCommand(number=1, cancel={}))
        worker.scripts[MODEL] = scripts.chat_stream(MODEL, ["a"], scripts.usage(3, 1))
        await caller.start(2, item())
        assert (await caller.whole(2)).text == "a"
        await until(gateway, 0)
        assert len(worker.requests) == 1
        assert caller.events[1] == []
        async with asyncio.timeout(5):
            while len(session):
                await asyncio.sleep(0)
