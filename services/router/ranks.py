"""The workers of one model by how loaded they are, so that the least loaded is found without a look at each. The registry keeps
one for each model.

Ranked are workers of which nothing but their load decides: serving, with a closed circuit, past easing in. Others that serve
are few, and are looked at one by one. Invariants: `place` is called after every change of a worker; what is found is held
against the worker itself before it counts, and what is not found here is no answer: `pick` then looks at all, and says why.
"""

from collections.abc import Sequence
from itertools import islice
from random import Random
from typing import Generic, NamedTuple, Protocol, TypeVar

from speedinfer.router.v1.fleet_pb2 import Feature

from services.router.pick import Candidate, Need, NotPicked, Picked, Why

Features = frozenset[Feature.ValueType]


class Ranked(Candidate, Protocol):
    """What is asked of a worker beside what `pick` asks."""

    @property
    def is_settled(self) -> bool: ...
    def has_room(self, now: float) -> bool: ...


C = TypeVar("C", bound=Ranked)


class _Place(NamedTuple):
    features: Features
    # Running requests by weight.
    load: float


class Ranks(Generic[C]):
    """The workers of one model."""

    def __init__(self) -> None:
        # What they can do -> load -> those that have it. None of the inner ones is empty.
        self._free: dict[Features, dict[float, dict[C, None]]] = {}
        self._full: dict[Features, dict[C, None]] = {}
        self._unsettled: dict[C, None] = {}
        self._places: dict[C, _Place] = {}

    def __len__(self) -> int:
        return len(self._places) + len(self._unsettled)

    def place(self, worker: C) -> None:
        """Something about the worker has changed, or it is new."""
        if not worker.is_serving or not worker.is_settled:
            self.remove(worker)
            if worker.is_serving:
                self._unsettled[worker] = None
            return
        at = _Place(worker.features, worker.in_flight / worker.weight)
        if self._places.get(worker) == at and (worker in self._full.get(at.features, ())) is _is_full(worker):
            return
        self.remove(worker)
        self._places[worker] = at
        if _is_full(worker):
            self._full.setdefault(at.features, {})[worker] = None
        else:
            self._free.setdefault(at.features, {}).setdefault(at.load, {})[worker] = None

    def remove(self, worker: C) -> None:
        """It serves the model no longer."""
        self._unsettled.pop(worker, None)
        at = self._places.pop(worker, None)
        if at is None:
            return
        full = self._full.get(at.features)
        if full is not None and worker in full:
            del full[worker]
            if not full:
                del self._full[at.features]
            return
        by_load = self._free[at.features]
        del by_load[at.load][worker]
        if not by_load[at.load]:
            del by_load[at.load]
            if not by_load:
                del self._free[at.features]

    def pick(self, needs: Sequence[Need], now: float, chance: Random) -> Picked[C] | NotPicked | None:
        """What `pick` would say of all these workers; None where only a look at each can tell."""
        wanted = frozenset(need.feature for need in needs)
        least, equals = self._least(wanted, now)
        if equals:
            count = sum(map(len, equals))
            found = _nth(equals, chance.randrange(count) if count > 1 else 0)
            is_so = found.has_room(now) and wanted <= found.features and found.in_flight / found.weight == least
            return Picked(found) if is_so and not found.prefers_others else None
        if not self._unsettled:
            full = (next(iter(workers)) for features, workers in self._full.items() if wanted <= features)
            one = next(full, None)
            if one is not None and one.is_serving and one.admits(now) and _is_full(one):
                return NotPicked(Why.OVERLOADED)
        return None

    def _least(self, wanted: Features, now: float) -> tuple[float, list[dict[C, None]]]:
        """The least load of those that can take it now, and who has it."""
        least, equals = float("inf"), list[dict[C, None]]()
        for features, by_load in self._free.items():
            if wanted <= features:
                load = min(by_load)
                if load < least:
                    least, equals = load, [by_load[load]]
                elif load == least:
                    equals.append(by_load[load])
        for worker in self._unsettled:
            if wanted <= worker.features and worker.has_room(now) and not worker.prefers_others:
                load = worker.in_flight / worker.weight
                if load < least:
                    least, equals = load, [{worker: None}]
                elif load == least:
                    equals.append({worker: None})
        return least, equals


def _is_full(worker: Candidate) -> bool:
    return worker.max_concurrency is not None and worker.in_flight >= worker.max_concurrency


def _nth(groups: Sequence[dict[C, None]], number: int) -> C:
    for group in groups:
        if number < len(group):
            return next(islice(group, number, None))
        number -= len(group)
    raise IndexError(number)
