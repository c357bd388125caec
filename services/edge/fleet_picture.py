"""What one router last told of its workers. Pure; `known_router.py` keeps one, `fleet_view.py` puts them together."""

from collections.abc import Iterable

from speedinfer.router.v1.fleet_pb2 import Fleet, Model, Worker

from services.edge.model_workers import ModelWorkers


class FleetPicture:
    """Models and their workers, as one router knows them."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}
        self._workers: dict[str, Worker] = {}
        # As far as they were asked for; they end with the picture.
        self._of_models: dict[str, ModelWorkers] = {}
        self._key = ("", 0)

    def take(self, fleet: Fleet) -> None:
        """The router told of its workers."""
        router_id, version = self._key
        # A live answer may overtake the watch; an older picture of the same router is not taken.
        if fleet.router_id == router_id and fleet.version < version:
            return
        self._key = (fleet.router_id, fleet.version)
        self._models = {model.name: model for model in fleet.models}
        self._workers = {worker.worker_id: worker for worker in fleet.workers}
        self._of_models = {}

    def workers_of(self, model: str) -> ModelWorkers | None:
        """The workers of a model; None if the router knows none. Not to be kept longer than a request takes."""
        known = self._of_models.get(model)
        if known is None and (found := self._models.get(model)) is not None:
            workers = [self._workers[each] for each in found.worker_ids if each in self._workers]
            if workers:
                known = self._of_models[model] = ModelWorkers(model, workers)
        return known


def together(fleets: Iterable[Fleet]) -> Fleet:
    """The fleets of several routers as one: a model that two know has the workers of both, and a worker that two know is shown
    once, with what both gave it. A router that was asked over two addresses counts once."""
    models: dict[str, Model] = {}
    workers: dict[str, Worker] = {}
    routers: set[str] = set()
    whole = Fleet()
    for fleet in fleets:
        if fleet.router_id in routers:
            continue
        routers.add(fleet.router_id)
        whole.router_id, whole.version = fleet.router_id, fleet.version
        for worker in fleet.workers:
            known = workers.get(worker.worker_id)
            if known is None:
                workers[worker.worker_id] = Worker()
                workers[worker.worker_id].CopyFrom(worker)
            else:
                known.in_flight += worker.in_flight
        for model in fleet.models:
            merged = models.setdefault(model.name, Model(name=model.name))
            merged.worker_ids.extend(each for each in model.worker_ids if each not in merged.worker_ids)
            if not merged.HasField("created_at") or _before(model, merged):
                merged.created_at.CopyFrom(model.created_at)
    whole.models.extend(models[name] for name in sorted(models))
    whole.workers.extend(workers.values())
    return whole


def _before(one: Model, other: Model) -> bool:
    return (one.created_at.seconds, one.created_at.nanos) < (other.created_at.seconds, other.created_at.nanos)
