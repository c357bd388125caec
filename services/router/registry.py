"""The set of registered workers: in memory, no I/O. The registrar changes it, dispatch and the fleet picture read it.

A worker that is replaced or removed is retired: it gets nothing new, and its transport closes after its last answer (the
registrar sees to that). Its load counter lives on under its id.
"""

from collections.abc import Collection, Iterator, Sequence
from random import Random

from services.router.pick import Need, NotPicked, Picked, pick
from services.router.ranks import Ranks
from services.router.worker import Load, Worker


class Registry:
    """Workers by id and by model."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self._by_model: dict[str, list[Worker]] = {}
        self._ranks: dict[str, Ranks[Worker]] = {}
        # Loads of ids that were removed while requests still ran on them.
        self._loads: dict[str, Load] = {}

    def __len__(self) -> int:
        return len(self._workers)

    def __iter__(self) -> Iterator[Worker]:
        """All workers, sorted by id."""
        # A copy, since metrics are read from another thread.
        return iter(sorted(self._workers.copy().values(), key=lambda worker: worker.worker_id))

    def get(self, worker_id: str) -> Worker | None:
        """The worker of an id."""
        return self._workers.get(worker_id)

    def of_model(self, model: str) -> list[Worker]:
        """The workers that serve a public model, whatever their state."""
        return self._by_model.get(model, [])

    def pick(
        self, model: str, needs: Sequence[Need], excluded: Collection[str], now: float, chance: Random
    ) -> Picked[Worker] | NotPicked:
        """Choose among the workers of a model; see `pick`."""
        ranks = self._ranks.get(model)
        picked = ranks.pick(needs, now, chance) if ranks is not None and not excluded else None
        return picked or pick(self.of_model(model), needs, excluded, now, chance)

    def models(self) -> list[str]:
        """All public models, sorted."""
        return sorted(self._by_model)

    def load_of(self, worker_id: str) -> Load:
        """The load counter of an id: the one that is counting, or a new one."""
        worker = self._workers.get(worker_id)
        return worker.load if worker is not None else self._loads.get(worker_id, Load())

    def put(self, worker: Worker) -> Worker | None:
        """Add a worker; answers the one that it replaces, now retired."""
        old = self.remove(worker.worker_id)
        self._loads.pop(worker.worker_id, None)
        self._workers[worker.worker_id] = worker
        for model in worker.registration.supported_models:
            self._by_model.setdefault(model, []).append(worker)
            self._ranks.setdefault(model, Ranks()).place(worker)
        worker.tell_ranks(self._moved)
        return old

    def remove(self, worker_id: str) -> Worker | None:
        """Take a worker out; answers it, now retired."""
        worker = self._workers.pop(worker_id, None)
        if worker is None:
            return None
        worker.retired = True
        worker.attention.set()
        for model in worker.registration.supported_models:
            serving = self._by_model[model]
            serving.remove(worker)
            self._ranks[model].remove(worker)
            if not serving:
                del self._by_model[model]
                del self._ranks[model]
        self._loads = {each: load for each, load in self._loads.items() if load.in_flight}
        if worker.load.in_flight:
            self._loads[worker_id] = worker.load
        return worker

    def _moved(self, changed: Worker) -> None:
        """The worker's rank may be another. Load belongs to an id, so that what a replaced worker gives back counts as well."""
        worker = self._workers.get(changed.worker_id)
        if worker is not None:
            for model in worker.registration.supported_models:
                self._ranks[model].place(worker)
