"""Many calls at once against workers that all fail, connections that break, and clients that all go: what the router must
not make worse, and must not forget."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from random import Random

import pytest

from tests.chaos.caller import Manner
from tests.chaos.footprint import metrics_at
from tests.chaos.history import Call, Ending
from tests.chaos.numbered import Act, Part
from tests.chaos.scene import Scene

WORKERS = ("w1", "w2", "w3")
RETRY_SHARE, RETRY_BURST = 0.2, 10
pytestmark = pytest.mark.processes
SETTINGS = {
    "SPEEDINFER_ROUTER__LIMITS__RETRY_SHARE": str(RETRY_SHARE),
    "SPEEDINFER_ROUTER__LIMITS__RETRY_BURST": str(RETRY_BURST),
    # Circuits stay closed, so that only the budget stands between the clients and the workers.
    "SPEEDINFER_ROUTER__LIMITS__FAILURES_TO_OPEN_CIRCUIT": "1000000",
    "SPEEDINFER_EDGE__LIMITS__MAX_ORPHANS_PER_KEY": "100000",
}


@pytest.fixture(scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    async with Scene(tmp_path_factory.mktemp("failures"), WORKERS, SETTINGS) as scene:
        yield scene


async def crowd(scene: Scene, count: int, part: Part, at_once: int, manner: Manner | None = None) -> list[Call]:
    """So many calls, streamed unless said otherwise."""
    account_id, (key,) = await scene.account()
    free = asyncio.Semaphore(at_once)

    async def one() -> Call:
        async with free:
            return await scene.call(account_id, key, manner or Manner(), part)

    return await asyncio.gather(*(one() for _ in range(count)))


def has_arrived(scene: Scene, number: int) -> bool:
    """Whether a worker has the call."""
    return any(number in worker.taken for worker in scene.workers.values())


async def test_when_all_workers_fail_attempts_grow_by_a_fifth_and_not_by_half(scene: Scene) -> None:
    requests = 300
    # What was saved up in quiet times is spent first.
    await crowd(scene, 5 * RETRY_BURST, Part(Act.BROKEN), at_once=30)
    already = len(scene.attempts())
    calls = await crowd(scene, requests, Part(Act.BROKEN), at_once=30)
    assert Counter(call.ending for call in calls) == {Ending.REFUSED: requests}
    assert {call.code for call in calls} == {"upstream_error"}
    attempts = len(scene.attempts()) - already
    # The first attempt of each was made, and some were tried again: nobody was turned away by the test's own doing.
    assert requests * (1 + RETRY_SHARE / 2) <= attempts <= requests * (1 + RETRY_SHARE) + 1
    assert await scene.audited() == []


async def test_after_400_aborted_calls_no_worker_counts_as_loaded(scene: Scene) -> None:
    before = await scene.footprint()
    already = len(scene.attempts())
    account_id, (key,) = await scene.account()
    free = asyncio.Semaphore(40)

    async def aborted(stream: bool) -> Call:
        async with free:
            number = len(scene.calls)
            manner = Manner(stream=stream, leaves_at=0, leaves_when=lambda: has_arrived(scene, number))
            # A worker that never answers.
            return await scene.call(account_id, key, manner, Part(Act.HANG, at=0))

    calls = await asyncio.gather(*(aborted(bool(index % 2)) for index in range(400)))
    assert Counter(call.ending for call in calls) == {Ending.LEFT: 400}
    assert len(scene.attempts()) - already == 400
    await scene.leaves_nothing(before)
    for worker in scene.workers.values():
        worker.attempts.clear()
    calls = await crowd(scene, 60, Part(events=4, gap_s=0.02), at_once=6)
    assert {call.ending for call in calls} == {Ending.ANSWERED}
    shares = {name: len(worker.attempts) for name, worker in scene.workers.items()}
    assert min(shares.values()) >= 10, f"the load is not shared: {shares}"


async def test_kept_connections_that_workers_close_fail_no_call(scene: Scene) -> None:
    chance = Random(8)
    before = metrics_at(scene.router_metrics)
    parts = [Part(events=2, closes_after_s=chance.choice((0.0, 0.001, 0.003, 0.01))) for _ in range(250)]
    account_id, (key,) = await scene.account()
    free = asyncio.Semaphore(12)

    async def one(part: Part) -> Call:
        async with free:
            return await scene.call(account_id, key, Manner(), part)

    calls = await asyncio.gather(*(one(part) for part in parts))
    assert Counter(call.ending for call in calls) == {Ending.ANSWERED: len(parts)}, Counter(call.code for call in calls)
    after = metrics_at(scene.router_metrics)
    stale = "speedinfer_router_stale_connections_total"
    assert after[stale] > before[stale], "none was reused too late"
    # No worker failed anything: circuits know nothing of it.
    failed = "speedinfer_router_failed_attempts_total"
    assert after.get(failed, 0) == before.get(failed, 0)
    # Not one was generated twice: what was sent again had not been begun.
    numbers = {call.number for call in calls}
    begun = Counter(attempt.call for attempt in scene.attempts() if attempt.sent and attempt.call in numbers)
    assert set(begun.values()) == {1}
    assert await scene.audited() == []
