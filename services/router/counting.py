"""How many tokens a prompt has, asked of a worker before the request is sent. The inference servicer uses it.

A worker's word, and never more than that: what is charged is what it reports of the request. Invariants: no place on the worker
is taken, and none of its circuit's judgement; at most so many questions at once for each worker's id, so that whoever may ask
for nothing cannot load it; every question ends in time; a worker whose count was short of what was reported is not asked again.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import structlog
from speedinfer.router.v1.inference_pb2 import NO_COUNT_BUSY, NO_COUNT_FAILED, NO_COUNT_UNABLE, NoCount

from services.router.breaker import Circuit
from services.router.metrics import Metrics
from services.router.pick import Need
from services.router.registry import Registry
from services.router.transport.port import Dispatch, WorkerFailure
from services.router.worker import Worker

_log = structlog.get_logger(__name__)
# Whatever the caller allows.
LONGEST_S = 10.0


@dataclass(frozen=True, slots=True)
class Counted:
    """A worker's word, or why there is none."""

    prompt_tokens: int = 0
    # Empty where no worker was asked.
    worker_id: str = ""
    why: NoCount.ValueType = NoCount.NO_COUNT_UNSPECIFIED


class Counting:
    """All questions of one router."""

    def __init__(self, registry: Registry, max_per_worker: int, metrics: Metrics, chance: Random) -> None:
        self._registry = registry
        self._max_per_worker = max_per_worker
        self._metrics = metrics
        self._chance = chance
        # Worker id -> questions that it has not answered yet.
        self._open: Counter[str] = Counter()

    async def count(self, dispatch: Dispatch, needs: Sequence[Need], preferred: str, wait_s: float) -> Counted:
        """Ask a worker of the model; `preferred` if it can be asked. `wait_s` 0: as long as anybody may wait."""
        counted = await self._count(dispatch, needs, preferred, min(wait_s or LONGEST_S, LONGEST_S))
        outcome = NoCount.Name(counted.why).removeprefix("NO_COUNT_").lower() if counted.why else "counted"
        self._metrics.counts.labels(outcome).inc()
        return counted

    async def _count(self, dispatch: Dispatch, needs: Sequence[Need], preferred: str, wait_s: float) -> Counted:
        able = self._able(dispatch.model, needs)
        if not able:
            return Counted(why=NO_COUNT_UNABLE)
        free = [worker for worker in able if self._open[worker.worker_id] < self._max_per_worker]
        if not free:
            return Counted(why=NO_COUNT_BUSY)
        worker = next((each for each in free if each.worker_id == preferred), None) or self._chance.choice(free)
        worker_id = worker.worker_id
        self._open[worker_id] += 1
        try:
            async with asyncio.timeout(wait_s):
                count = await worker.transport.count(dispatch)
        except (WorkerFailure, TimeoutError) as error:
            detail = error.detail or error.message if isinstance(error, WorkerFailure) else "timeout"
            _log.info("prompt_not_counted", request_id=dispatch.request_id, worker_id=worker_id, detail=detail)
            return Counted(worker_id=worker_id, why=NO_COUNT_FAILED)
        finally:
            self._open[worker_id] -= 1
            if not self._open[worker_id]:
                del self._open[worker_id]
        return Counted(worker_id=worker_id, why=NO_COUNT_UNABLE) if count is None else Counted(count, worker_id)

    def _able(self, model: str, needs: Sequence[Need]) -> list[Worker]:
        now = asyncio.get_running_loop().time()
        return [
            worker
            for worker in self._registry.of_model(model)
            if worker.counts_tokens
            and worker.is_serving
            and worker.circuit(now) is Circuit.CLOSED
            and all(need.feature in worker.features for need in needs)
        ]

    def reported(self, worker_id: str, counted: int, prompt_tokens: int, request_id: str) -> None:
        """What a request came to whose prompt this worker had counted."""
        worker = self._registry.get(worker_id)
        if worker is None or prompt_tokens <= counted:
            return
        self._metrics.counts_short.labels(worker_id).inc()
        _log.error(
            "count_was_short", request_id=request_id, worker_id=worker_id, counted=counted, reported=prompt_tokens
        )
        worker.miscounted()
