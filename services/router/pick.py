"""Which worker gets a request: pure. `dispatch.py` asks it.

The least loaded (running requests by weight) of the workers that can do what is asked; one that has only just come back gets
a few at first, if others can take the rest; among equals, chance decides, so that several routers do not all choose the same.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Generic, Protocol, TypeVar

from speedinfer.router.v1.fleet_pb2 import Feature


class Candidate(Protocol):
    """What is asked of a worker."""

    @property
    def worker_id(self) -> str: ...
    @property
    def is_serving(self) -> bool: ...
    @property
    def is_known(self) -> bool: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def max_concurrency(self) -> int | None: ...
    @property
    def weight(self) -> float: ...
    @property
    def features(self) -> frozenset[Feature.ValueType]: ...
    @property
    def prefers_others(self) -> bool: ...
    def admits(self, now: float) -> bool: ...


C = TypeVar("C", bound=Candidate)


class Why(Enum):
    """Why no worker was picked."""

    # None is registered for the model.
    MODEL_NOT_FOUND = "model_not_found"
    # None of them can do what is asked.
    UNSUPPORTED = "unsupported"
    # Those that could are down, draining, resting, or were tried already.
    NO_WORKER = "no_worker"
    # Those that could are at their bound.
    OVERLOADED = "overloaded"


@dataclass(frozen=True, slots=True)
class Picked(Generic[C]):
    """This one."""

    worker: C


@dataclass(frozen=True, slots=True)
class NotPicked:
    """None, and why."""

    why: Why
    # For UNSUPPORTED: the client's field at fault, or empty.
    param: str = ""
    feature: Feature.ValueType = Feature.FEATURE_UNSPECIFIED


@dataclass(frozen=True, slots=True)
class Need:
    """A feature, and the client's field that asks for it."""

    feature: Feature.ValueType
    param: str


def pick(
    workers: Sequence[C], needs: Sequence[Need], excluded: Collection[str], now: float, chance: Random
) -> Picked[C] | NotPicked:
    """Choose among the workers of a model. `excluded`: ids of those that were tried."""
    if not workers:
        return NotPicked(Why.MODEL_NOT_FOUND)
    able = [worker for worker in workers if all(need.feature in worker.features for need in needs)]
    if not able:
        return _unsupported(workers, needs)
    ready = [worker for worker in able if worker.is_serving and worker.worker_id not in excluded and worker.admits(now)]
    if not ready:
        return NotPicked(Why.NO_WORKER)
    free = [worker for worker in ready if worker.max_concurrency is None or worker.in_flight < worker.max_concurrency]
    if not free:
        return NotPicked(Why.OVERLOADED)
    free = [worker for worker in free if not worker.prefers_others] or free
    if len(free) == 1:
        return Picked(free[0])
    least = min(worker.in_flight / worker.weight for worker in free)
    return Picked(chance.choice([worker for worker in free if worker.in_flight / worker.weight <= least]))


def _unsupported(workers: Sequence[C], needs: Sequence[Need]) -> NotPicked:
    if not all(worker.is_known for worker in workers):
        # What one of them can do is not known yet: nobody may be told that it cannot be done.
        return NotPicked(Why.NO_WORKER)
    best = max(workers, key=lambda worker: sum(need.feature in worker.features for need in needs))
    missing = next(need for need in needs if need.feature not in best.features)
    return NotPicked(Why.UNSUPPORTED, missing.param, missing.feature)
