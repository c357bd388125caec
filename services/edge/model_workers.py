"""The workers of one model at one router, judged once for each picture and set of needs. Pure; `fleet_picture.py` makes them.

A picture is replaced whole, some once a second, while requests come by the thousand: what depends on the picture alone is found
out by the first request that asks, and ends with the picture. Invariant: the answers are those of `capability.judge`.
"""

from collections.abc import Sequence
from functools import cached_property

from speedinfer.router.v1.fleet_pb2 import WORKER_STATUS_HEALTHY, Worker

from services.edge import capability
from services.edge.openai_errors import Problem
from services.edge.openai_request import Need

# Sets of features whose judgement is remembered. Few are in use; where there are more, all are judged anew.
MAX_REMEMBERED = 64


class ModelWorkers:
    """Workers that do not change any more."""

    def __init__(self, model: str, workers: Sequence[Worker]) -> None:
        self._model = model
        self.workers = workers
        # By the features that are needed, not by the members that ask for them, whose names a client may choose.
        self._may_serve: dict[frozenset[int], bool] = {}
        self._has_room: dict[frozenset[int], bool] = {}

    def judge(self, needs: Sequence[Need]) -> Problem | None:
        """See capability.judge. Only that there is a problem is remembered: its text names the members of one request."""
        features = _features(needs)
        may_serve = self._may_serve.get(features)
        if may_serve is None:
            problem = capability.judge(self.workers, needs, self._model)
            _remember(self._may_serve, features, problem is None)
            return problem
        return None if may_serve else capability.judge(self.workers, needs, self._model)

    def has_room(self, needs: Sequence[Need]) -> bool:
        """Whether one of those that may take such a request now has no bound, so that there is room always."""
        features = _features(needs)
        has_room = self._has_room.get(features)
        if has_room is None:
            has_room = any(
                worker.max_concurrency == 0
                and worker.status == WORKER_STATUS_HEALTHY
                and worker.circuit == "closed"
                and features.issubset(worker.features)
                for worker in self.workers
            )
            _remember(self._has_room, features, has_room)
        return has_room

    @cached_property
    def ids(self) -> list[str]:
        """Their ids."""
        return [worker.worker_id for worker in self.workers]

    @cached_property
    def healthy(self) -> int:
        """How many are healthy."""
        return sum(worker.status == WORKER_STATUS_HEALTHY for worker in self.workers)

    @cached_property
    def count_tokens(self) -> bool:
        """Whether one of them can be asked how many tokens a prompt has."""
        return any(worker.counts_tokens for worker in self.workers)


def _features(needs: Sequence[Need]) -> frozenset[int]:
    return frozenset([need.feature for need in needs])


def _remember(judged: dict[frozenset[int], bool], features: frozenset[int], answer: bool) -> None:
    if len(judged) >= MAX_REMEMBERED:
        judged.clear()
    judged[features] = answer
