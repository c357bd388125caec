"""Picking, the circuit, health and the registry: tables of situations and outcomes."""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speedinfer.router.v1.fleet_pb2 import (
    FEATURE_CHAT,
    FEATURE_CHOICES,
    FEATURE_TOOLS,
    WORKER_STATUS_DRAINING,
    WORKER_STATUS_HEALTHY,
    WORKER_STATUS_MISCONFIGURED,
    WORKER_STATUS_UNHEALTHY,
    Feature,
)

from services.router.breaker import Breaker, Circuit, Event
from services.router.health import Health, Thresholds
from services.router.pick import Need, NotPicked, Picked, Why, pick
from services.router.transport.port import CONNECT, MISCONFIGURED, Finding


@dataclass
class Stand:
    """A worker as `pick` sees it."""

    worker_id: str = "w"
    in_flight: int = 0
    max_concurrency: int | None = None
    weight: float = 1.0
    features: frozenset[Feature.ValueType] = frozenset({FEATURE_CHAT})
    is_serving: bool = True
    is_known: bool = True
    closed: bool = field(default=True)
    prefers_others: bool = False

    def admits(self, now: float) -> bool:
        return self.closed


CHAT = [Need(FEATURE_CHAT, "")]
TOOLS = [Need(FEATURE_CHAT, ""), Need(FEATURE_TOOLS, "tools")]
WITH_TOOLS = frozenset({FEATURE_CHAT, FEATURE_TOOLS})

TABLE: list[tuple[str, list[Stand], list[Need], list[str], str | NotPicked]] = [
    ("none", [], CHAT, [], NotPicked(Why.MODEL_NOT_FOUND)),
    ("one", [Stand("a")], CHAT, [], "a"),
    ("least loaded", [Stand("a", 2), Stand("b", 1)], CHAT, [], "b"),
    ("by weight", [Stand("a", 3, weight=4), Stand("b", 1)], CHAT, [], "a"),
    ("down", [Stand("a", is_serving=False), Stand("b", 9)], CHAT, [], "b"),
    ("all down", [Stand("a", is_serving=False)], CHAT, [], NotPicked(Why.NO_WORKER)),
    ("tried", [Stand("a"), Stand("b", 9)], CHAT, ["a"], "b"),
    ("all tried", [Stand("a")], CHAT, ["a"], NotPicked(Why.NO_WORKER)),
    ("resting", [Stand("a", closed=False), Stand("b", 9)], CHAT, [], "b"),
    ("all resting", [Stand("a", closed=False)], CHAT, [], NotPicked(Why.NO_WORKER)),
    ("just back", [Stand("a", 2, prefers_others=True), Stand("b", 9)], CHAT, [], "b"),
    ("just back, and alone", [Stand("a", 2, prefers_others=True)], CHAT, [], "a"),
    ("at its bound", [Stand("a", 1, 1), Stand("b", 9)], CHAT, [], "b"),
    ("all at their bound", [Stand("a", 1, 1)], CHAT, [], NotPicked(Why.OVERLOADED)),
    ("able", [Stand("a"), Stand("b", 9, features=WITH_TOOLS)], TOOLS, [], "b"),
    ("none able", [Stand("a")], TOOLS, [], NotPicked(Why.UNSUPPORTED, "tools", FEATURE_TOOLS)),
    ("none able, and down", [Stand("a", is_serving=False)], TOOLS, [], NotPicked(Why.UNSUPPORTED, "tools", FEATURE_TOOLS)),
    ("not known yet", [Stand("a", is_known=False, is_serving=False)], TOOLS, [], NotPicked(Why.NO_WORKER)),
    ("able but down", [Stand("a"), Stand("b", features=WITH_TOOLS, is_serving=False)], TOOLS, [], NotPicked(Why.NO_WORKER)),
    ("the operation itself", [Stand("a", features=frozenset({FEATURE_CHOICES}))], CHAT, [],
     NotPicked(Why.UNSUPPORTED, "", FEATURE_CHAT)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "workers", "needs", "tried", "expected"), TABLE, ids=[row[0] for row in TABLE])
def test_pick(name: str, workers: list[Stand], needs: list[Need], tried: list[str], expected: str | NotPicked) -> None:
    outcome = pick(workers, needs, tried, 0.0, Random(1))
    assert (outcome.worker.worker_id if isinstance(outcome, Picked) else outcome) == expected


def test_chance_decides_among_equals() -> None:
    workers = [Stand("a"), Stand("b"), Stand("c", 1)]
    chance = Random(1)
    picked: Counter[str] = Counter()
    for _ in range(200):
        outcome = pick(workers, CHAT, [], 0.0, chance)
        assert isinstance(outcome, Picked)
        picked[outcome.worker.worker_id] += 1
    assert picked.keys() == {"a", "b"}
    assert min(picked.values()) > 60


STEPS: list[tuple[str, list[tuple[float, Event]], float, Circuit, bool]] = [
    ("fresh", [], 0, Circuit.CLOSED, True),
    ("below the bound", [(0, Event.FAILED)] * 2, 0, Circuit.CLOSED, True),
    ("at the bound", [(0, Event.FAILED)] * 3, 0, Circuit.OPEN, False),
    ("not in a row", [(0, Event.FAILED), (0, Event.FAILED), (0, Event.SUCCEEDED), (0, Event.FAILED)], 0, Circuit.CLOSED, True),
    ("undecided does not count", [(0, Event.FAILED), (0, Event.FAILED), *[(0, Event.UNDECIDED)] * 9], 0, Circuit.CLOSED, True),
    ("rested", [(0, Event.FAILED)] * 3, 5, Circuit.HALF_OPEN, True),
    ("not yet rested", [(0, Event.FAILED)] * 3, 4.9, Circuit.OPEN, False),
    ("one at a time", [*[(0, Event.FAILED)] * 3, (5, Event.ADMITTED)], 6, Circuit.HALF_OPEN, False),
    ("the one left", [*[(0, Event.FAILED)] * 3, (5, Event.ADMITTED), (6, Event.UNDECIDED)], 6, Circuit.HALF_OPEN, True),
    ("the one succeeded", [*[(0, Event.FAILED)] * 3, (5, Event.ADMITTED), (6, Event.SUCCEEDED)], 6, Circuit.CLOSED, True),
    ("the one failed", [*[(0, Event.FAILED)] * 3, (5, Event.ADMITTED), (6, Event.FAILED)], 10.9, Circuit.OPEN, False),
    ("rested again", [*[(0, Event.FAILED)] * 3, (5, Event.ADMITTED), (6, Event.FAILED)], 11, Circuit.HALF_OPEN, True),
    ("an old success", [*[(0, Event.FAILED)] * 3, (1, Event.SUCCEEDED)], 1, Circuit.CLOSED, True),
    ("counts anew", [*[(0, Event.FAILED)] * 3, (5, Event.ADMITTED), (6, Event.SUCCEEDED), (7, Event.FAILED)], 7,
     Circuit.CLOSED, True),
]  # fmt: skip


@pytest.mark.parametrize(("name", "events", "now", "state", "admits"), STEPS, ids=[row[0] for row in STEPS])
def test_circuit(name: str, events: list[tuple[float, Event]], now: float, state: Circuit, admits: bool) -> None:
    breaker = Breaker(3, 5.0)
    for at, event in events:
        breaker.record(event, at)
    assert breaker.state(now) is state
    assert breaker.admits(now) == admits


@pytest.mark.parametrize(
    ("older", "admits"), [(Event.UNDECIDED, False), (Event.FAILED, False), (Event.SUCCEEDED, True)]
)
def test_what_an_older_request_comes_to_makes_no_room_for_a_second(older: Event, admits: bool) -> None:
    breaker = Breaker(1, 5.0)
    old, probe = object(), object()
    breaker.record(Event.ADMITTED, 0, old)
    breaker.record(Event.FAILED, 0)
    breaker.record(Event.ADMITTED, 5, probe)
    breaker.record(older, 6, old)
    assert breaker.admits(6) == admits
    breaker.record(Event.UNDECIDED, 7, probe)
    assert breaker.admits(7)


def test_a_worker_that_comes_back_eases_in() -> None:
    breaker = Breaker(1, 5.0)
    assert not breaker.prefers_others(10_000)
    breaker.record(Event.FAILED, 0)
    breaker.record(Event.ADMITTED, 5)
    breaker.record(Event.SUCCEEDED, 6)
    bounds = []
    for at in range(7, 14):
        bounds.append(next((number for number in range(200) if breaker.prefers_others(number)), None))
        breaker.record(Event.SUCCEEDED, at)
    assert bounds == [2, 4, 8, 16, 32, 64, None]


@given(st.lists(st.tuples(st.floats(0, 3), st.sampled_from(list(Event)))))
def test_a_circuit_always_lets_somebody_try_in_the_end(steps: list[tuple[float, Event]]) -> None:
    breaker = Breaker(2, 5.0)
    now = 0.0
    for passed, event in steps:
        now += passed
        breaker.record(event, now)
    # A little more than the rest, which sums of floats may miss by a hair.
    breaker.record(Event.UNDECIDED, now + 5.1)
    assert breaker.admits(now + 5.1)


DOWN, WRONG, GOOD = Finding(CONNECT, "x"), Finding(MISCONFIGURED, "y"), Finding()


def test_health_by_looks() -> None:
    health = Health(Thresholds(to_go_down=2, to_come_back=2))
    assert health.status == WORKER_STATUS_UNHEALTHY
    health.on_check(GOOD)
    assert health.status == WORKER_STATUS_HEALTHY
    health.on_probe(DOWN)
    assert health.status == WORKER_STATUS_HEALTHY
    health.on_probe(GOOD)
    health.on_probe(DOWN)
    assert health.status == WORKER_STATUS_HEALTHY
    health.on_probe(DOWN)
    assert health.status == WORKER_STATUS_UNHEALTHY
    health.on_check(GOOD)
    assert health.status == WORKER_STATUS_UNHEALTHY
    health.on_check(GOOD)
    assert health.status == WORKER_STATUS_HEALTHY
    health.on_check(WRONG)
    assert health.status == WORKER_STATUS_MISCONFIGURED
    assert health.finding == WRONG
    health.draining = True
    assert health.status == WORKER_STATUS_DRAINING


def test_health_by_usage() -> None:
    health = Health(Thresholds(2, 1))
    health.on_check(GOOD)
    for reported in (False, False, True, False, False):
        assert not health.on_usage(reported)
    assert health.on_usage(False)
    assert health.status == WORKER_STATUS_MISCONFIGURED
    assert not health.on_usage(False)
    health.on_check(GOOD)
    assert health.status == WORKER_STATUS_HEALTHY
    assert not health.on_usage(False)
