"""The ranks by load against the rule itself: whatever happened to the workers, both say the same."""

from collections import Counter
from random import Random
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st
from speedinfer.router.v1.fleet_pb2 import FEATURE_CHAT, FEATURE_TOOLS, Feature

from services.router.breaker import Event
from services.router.pick import Need, NotPicked, Picked, Why, pick
from services.router.ranks import Ranks
from services.router.registry import Registry
from services.router.transport.port import Finding, Transport
from services.router.worker import Worker
from tests.harness.router_worker import worker_of

CHAT = [Need(FEATURE_CHAT, "")]
TOOLS = [Need(FEATURE_CHAT, ""), Need(FEATURE_TOOLS, "tools")]
MODEL = "acme/model-1"
FEATURES = (frozenset({FEATURE_CHAT}), frozenset({FEATURE_CHAT, FEATURE_TOOLS}))


class Stand:
    """A worker as both see it; counts how often it was looked at."""

    def __init__(
        self, worker_id: str, features: frozenset[Feature.ValueType] = FEATURES[0], weight: float = 1.0
    ) -> None:
        self.worker_id, self.features, self.weight = worker_id, features, weight
        self.in_flight = 0
        self.max_concurrency: int | None = None
        self.is_known = self.is_settled = self.closed = True
        self.prefers_others = False
        self.serving = True
        self.looks = 0

    @property
    def is_serving(self) -> bool:
        self.looks += 1
        return self.serving

    def admits(self, now: float) -> bool:
        return self.closed

    def has_room(self, now: float) -> bool:
        below = self.max_concurrency is None or self.in_flight < self.max_concurrency
        return below and self.is_serving and self.closed


def ranked(workers: list[Stand]) -> Ranks[Stand]:
    ranks: Ranks[Stand] = Ranks()
    for worker in workers:
        ranks.place(worker)
    return ranks


CHANGES = ("load", "bound", "serving", "circuit", "easing", "features", "weight")


def change(worker: Stand, kind: str, number: int) -> None:
    if kind == "load":
        worker.in_flight = number
    elif kind == "bound":
        worker.max_concurrency = number or None
    elif kind == "serving":
        worker.serving = number % 2 == 0
    elif kind == "circuit":
        worker.closed = number % 2 == 0
        worker.is_settled = worker.closed and not worker.prefers_others
    elif kind == "easing":
        worker.prefers_others = number % 2 == 1
        worker.is_settled = worker.closed and not worker.prefers_others
    elif kind == "features":
        worker.features = FEATURES[number % 2]
    else:
        worker.weight = 1.0 + number % 2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(CHANGES), st.integers(0, 3)), max_size=25), st.booleans())
def test_ranks_say_what_a_look_at_all_says(steps: list[tuple[int, str, int]], tools: bool) -> None:
    workers = [Stand(f"w{number}") for number in range(5)]
    ranks = ranked(workers)
    needs = TOOLS if tools else CHAT
    for at, kind, number in steps:
        change(workers[at], kind, number)
        ranks.place(workers[at])
        said, rule = ranks.pick(needs, 0.0, Random(1)), pick(workers, needs, (), 0.0, Random(1))
        if isinstance(said, Picked):
            assert isinstance(rule, Picked)
            assert said.worker.in_flight / said.worker.weight == rule.worker.in_flight / rule.worker.weight
            assert said.worker.has_room(0.0)
            assert not said.worker.prefers_others
        elif said is not None:
            assert said == rule
        else:
            # A look at all is left to the rule only where nobody is simply free.
            assert not any(
                each.is_settled and each.has_room(0.0) and {need.feature for need in needs} <= each.features
                for each in workers
            )
    for worker in workers:
        ranks.remove(worker)
    assert len(ranks) == 0


def test_chance_decides_among_equals_of_any_kind() -> None:
    workers = [Stand("a"), Stand("b", FEATURES[1]), Stand("c")]
    workers[2].is_settled = False
    ranks, chance = ranked(workers), Random(1)
    picked: Counter[str] = Counter()
    for _ in range(300):
        said = ranks.pick(CHAT, 0.0, chance)
        assert isinstance(said, Picked)
        picked[said.worker.worker_id] += 1
    assert picked.keys() == {"a", "b", "c"}
    assert min(picked.values()) > 60


def test_a_thousand_workers_are_not_looked_at_one_by_one() -> None:
    workers = [Stand(f"w{number}") for number in range(1_000)]
    ranks = ranked(workers)
    before = sum(worker.looks for worker in workers)
    assert isinstance(ranks.pick(CHAT, 0.0, Random(1)), Picked)
    assert sum(worker.looks for worker in workers) - before <= 2


def test_what_nobody_told_is_seen_before_it_counts() -> None:
    worker = Stand("a")
    ranks = ranked([worker])
    worker.serving = False
    assert ranks.pick(CHAT, 0.0, Random(1)) is None


def test_all_at_their_bound_is_known_without_a_look_at_each() -> None:
    workers = [Stand(f"w{number}") for number in range(1_000)]
    for worker in workers:
        worker.in_flight = worker.max_concurrency = 1
    ranks = ranked(workers)
    before = sum(worker.looks for worker in workers)
    assert ranks.pick(CHAT, 0.0, Random(1)) == NotPicked(Why.OVERLOADED)
    assert sum(worker.looks for worker in workers) - before <= 2


class Able:
    """As much of a transport as picking looks at."""

    features = frozenset({FEATURE_CHAT})


def healthy(worker_id: str) -> Worker:
    worker = worker_of(cast(Transport, Able()), worker_id)
    worker.health.on_check(Finding())
    return worker


async def test_the_registry_ranks_by_what_runs_on_an_id() -> None:
    registry = Registry()
    first, second = healthy("a"), healthy("b")
    for worker in (first, second):
        registry.put(worker)
    chance = Random(1)

    def picks() -> set[str]:
        said = [registry.pick(MODEL, [], (), 0.0, chance) for _ in range(20)]
        return {each.worker.worker_id for each in said if isinstance(each, Picked)}

    assert picks() == {"a", "b"}
    slot = first.take(0.0)
    assert picks() == {"b"}
    # It is replaced while something runs on it, and what it gives back then makes its successor free.
    again = healthy("a")
    again.load = registry.load_of("a")
    registry.put(again)
    assert picks() == {"b"}
    slot.release()
    assert picks() == {"a", "b"}
    # One that failed and came back eases in: it is ranked again only after its last step.
    for number in range(5):
        second.take(number).record(Event.FAILED, 0.0)
    assert picks() == {"a"}
    second.drain()
    again.drain()
    assert picks() == set()
