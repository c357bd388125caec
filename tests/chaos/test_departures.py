"""Clients that leave: at every index of a stream, at random, and while their charge is being booked. Each is cancelled or
read on by the rule, settled exactly once, and leaves nothing open.

CHAOS_DEPARTURES=5000 makes the random ones many.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from random import Random

import pytest

from tests.chaos import books
from tests.chaos.caller import Manner
from tests.chaos.footprint import edge_metrics
from tests.chaos.history import Call, Counts, Ending
from tests.chaos.numbered import Part, prompt_tokens
from tests.chaos.scene import Scene
from tests.harness.until import until_async

RANDOM_DEPARTURES = int(os.environ.get("CHAOS_DEPARTURES", "200"))
SEED = int(os.environ.get("CHAOS_SEED", "20261202"))
AGAIN = (
    f"once more: CHAOS_SEED={SEED} CHAOS_DEPARTURES={RANDOM_DEPARTURES} pytest tests/chaos/test_departures.py -k random"
)
AT_ONCE = 40
EVENTS = 10
TOLD, SILENT = "acme/told", "acme/silent"
# The worker that reports usage with every event, and the one that reports it at the end.
MODELS = {"told": TOLD, "silent": SILENT}
CONFIG = {"told": {"stream_options": "continuous"}, "silent": {"stream_options": "usage"}}
SETTINGS = {
    "SPEEDINFER_EDGE__LIMITS__MAX_ORPHANS_PER_KEY": "100000",
    # Long enough to leave while it lasts.
    "SPEEDINFER_EDGE__LIMITS__SETTLE_WAIT_S": "0.6",
}
pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    async with Scene(tmp_path_factory.mktemp("departures"), list(MODELS), SETTINGS, MODELS, CONFIG) as scene:
        account_id, (key,) = await scene.account()
        # Connections and lazily made things are there from now on.
        for model in MODELS.values():
            await asyncio.gather(*(scene.call(account_id, key, Manner(), model=model) for _ in range(AT_ONCE)))
        yield scene


def arrived(scene: Scene, model: str, number: int) -> Callable[[], bool]:
    """Whether the worker has the call."""
    return lambda: number in scene.workers[model.removeprefix("acme/")].taken


async def gone_from(scene: Scene, model: str, call: Call) -> None:
    """Wait until the worker has seen that nobody reads its answer any more; it would wait for ever otherwise."""
    request = scene.workers[model.removeprefix("acme/")].taken[call.number]
    await until_async(request.disconnected.is_set, f"the worker of call {call.number} is dropped", 10)


async def charged(scene: Scene, account_id: str) -> dict[str, Counts]:
    """Request -> what it was charged for, once nothing is held."""
    found = await asyncio.to_thread(books.read, scene.product, [account_id])
    return {charge.request_id: charge.counts for charge in found.charges}


async def test_at_every_index_of_a_stream_that_reports_usage_the_worker_is_dropped_and_usage_so_far_charged(
    scene: Scene,
) -> None:
    before = await scene.footprint()
    account_id, (key,) = await scene.account()

    async def leave(at: int) -> Call:
        part = Part(events=EVENTS, gate=asyncio.Event(), gate_at=at)
        manner = Manner(leaves_at=min(at, EVENTS), leaves_when=arrived(scene, TOLD, first + at))
        call = await scene.call(account_id, key, manner, part, model=TOLD)
        assert call.ending is Ending.LEFT, call
        await gone_from(scene, TOLD, call)
        return call

    first = len(scene.calls)
    # At EVENTS + 1 the finish_reason has come, and the usage of the end has not.
    calls = await asyncio.gather(*(leave(at) for at in range(EVENTS + 2)))
    paid = await charged(scene, account_id)
    told = {call.request_id: Counts(prompt_tokens(call.number), len(call.text.split())) for call in calls if call.text}
    assert len(told) == EVENTS + 1
    assert paid == told
    await scene.leaves_nothing(before)
    assert await scene.audited(calm=True) == []


async def test_at_every_index_of_a_stream_that_reports_at_its_end_it_is_read_on_and_charged_whole(scene: Scene) -> None:
    before = await scene.footprint()
    account_id, (key,) = await scene.account()
    gates = [asyncio.Event() for _ in range(EVENTS + 2)]
    first = len(scene.calls)

    async def leave(at: int) -> Call:
        part = Part(events=EVENTS, gate=gates[at], gate_at=at)
        manner = Manner(leaves_at=min(at, EVENTS), leaves_when=arrived(scene, SILENT, first + at))
        call = await scene.call(account_id, key, manner, part, model=SILENT)
        assert call.ending is Ending.LEFT, call
        return call

    calls = await asyncio.gather(*(leave(at) for at in range(EVENTS + 2)))
    await gone_from(scene, SILENT, calls[0])
    await until_async(
        lambda: edge_metrics(scene.product)["speedinfer_edge_orphans"] == EVENTS + 1, "the others are read on"
    )
    # They wait for their workers: their holds are open, and nothing is charged yet.
    assert await asyncio.to_thread(lambda: len(scene.product.entries(account_id))) == 1
    for gate in gates:
        scene.loop.soon(gate.set)
    paid = await charged(scene, account_id)
    assert paid == {call.request_id: Counts(prompt_tokens(call.number), EVENTS) for call in calls if call.text}
    assert len(paid) == EVENTS + 1
    await scene.leaves_nothing(before)
    assert await scene.audited(calm=True) == []


@pytest.mark.parametrize("model", [TOLD, SILENT])
async def test_who_leaves_a_whole_answer_pays_nothing_and_frees_the_worker(scene: Scene, model: str) -> None:
    before = await scene.footprint()
    account_id, (key,) = await scene.account()
    manner = Manner(stream=False, leaves_at=0, leaves_when=arrived(scene, model, len(scene.calls)))
    call = await scene.call(account_id, key, manner, Part(gate=asyncio.Event()), model=model)
    await gone_from(scene, model, call)
    assert await charged(scene, account_id) == {}
    await scene.leaves_nothing(before)


@pytest.mark.parametrize("journaled", [False, True], ids=["before-the-journal", "after-the-journal"])
async def test_who_leaves_while_the_charge_is_being_booked_pays_once(scene: Scene, journaled: bool) -> None:
    before = await scene.footprint()
    account_id, (key,) = await scene.account()
    gate, leave = asyncio.Event(), asyncio.Event()
    manner = Manner(leaves_at=EVENTS, leaves_when=leave.is_set)
    part = Part(events=EVENTS, gate=gate, gate_at=EVENTS)
    first = len(scene.calls)
    made = [asyncio.create_task(scene.call(account_id, key, manner, part, model=model)) for model in (TOLD, SILENT)]
    await until_async(
        lambda: arrived(scene, TOLD, first)() and arrived(scene, SILENT, first + 1)(), "the workers have the calls"
    )
    already = edge_metrics(scene.product)["speedinfer_edge_settlements_journaled_total"]
    os.kill(scene.product.pid("billing"), signal.SIGSTOP)
    try:
        scene.loop.soon(gate.set)

        def waits() -> bool:
            metrics = edge_metrics(scene.product)
            if journaled:
                return metrics["speedinfer_edge_settlements_journaled_total"] == already + len(made)
            return metrics["speedinfer_edge_outbox_settlements"] == len(made)

        await until_async(waits, "the settlements wait for billing")
        leave.set()
        calls = await asyncio.gather(*made)
    finally:
        os.kill(scene.product.pid("billing"), signal.SIGCONT)
    assert {call.ending for call in calls} == {Ending.LEFT}, calls
    await asyncio.to_thread(books.wait_until_delivered, scene.product)
    assert await charged(scene, account_id) == {
        call.request_id: Counts(prompt_tokens(call.number), EVENTS) for call in calls
    }
    await scene.leaves_nothing(before)


@pytest.mark.timeout(1800)
async def test_random_departures_are_settled_once_and_leave_nothing(scene: Scene) -> None:
    before = await scene.footprint()
    account_id, (key,) = await scene.account()
    chance = Random(SEED)
    plans = [planned(chance) for _ in range(RANDOM_DEPARTURES)]
    free = asyncio.Semaphore(AT_ONCE)

    async def one(manner: Manner, part: Part, model: str) -> Call:
        async with free:
            return await scene.call(account_id, key, manner, part, model=model)

    calls = await asyncio.gather(*(one(*plan) for plan in plans))
    left = [call for call in calls if call.ending is Ending.LEFT]
    # Leaving at the last events may meet the end instead.
    assert len(left) > RANDOM_DEPARTURES // 2, "too few have left for this to show anything"
    assert {call.ending for call in calls} <= {Ending.LEFT, Ending.ANSWERED}, AGAIN
    wrong = await scene.audited(calm=True)
    assert wrong == [], AGAIN
    await scene.leaves_nothing(before, 60)


def planned(chance: Random) -> tuple[Manner, Part, str]:
    """One random call: whether it streams, from which worker, how fast, and where its client leaves."""
    events = chance.randint(1, 14)
    stream = chance.random() < 0.9
    leaves_at = chance.randint(0, events + 1) if stream else 0
    manner = Manner(
        stream=stream,
        leaves_at=leaves_at,
        leaves_after_s=chance.choice((0.0, 0.0, 0.01, 0.05, 0.2))
        if leaves_at == 0
        else chance.choice((0.0, 0.0, 0.02)),
        wants_usage=chance.random() < 0.5,
    )
    return manner, Part(events=events, gap_s=chance.choice((0.0, 0.001, 0.01, 0.03))), chance.choice((TOLD, SILENT))
