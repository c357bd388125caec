"""The edge's picture of the router's workers: kept current by a watch, asked live where it would say no.

A model that was registered a moment ago must not be a 404 because the watch has not told yet, so every "no" is checked
with one live call that concurrent requests share.
"""

import asyncio
from collections.abc import Sequence

import grpc
import structlog
from speedinfer.router.v1.fleet_pb2 import Fleet, Model, Worker

from services.edge import capability
from services.edge.coalesce import Shared
from services.edge.openai_errors import ROUTER_UNAVAILABLE, Refused, model_not_found
from services.edge.openai_request import Need
from services.edge.router_client import RouterClient

_log = structlog.get_logger(__name__)
_PAUSE_S = 0.2


class FleetView:
    """Models and their workers."""

    def __init__(self, router: RouterClient) -> None:
        self._router = router
        self._live: Shared[Fleet] = Shared()
        self._models: dict[str, Model] = {}
        self._workers: dict[str, Worker] = {}
        self._key = ("", 0)
        self._watching = False

    @property
    def watching(self) -> bool:
        """Whether the picture is being kept current."""
        return self._watching

    async def watch(self) -> None:
        """Keep the picture current; runs until it is cancelled."""
        while True:
            try:
                async for answer in self._router.watch():
                    self._watching = True
                    self._take(answer.fleet)
            except grpc.aio.AioRpcError as error:
                if self._watching:
                    _log.warning("fleet_watch_lost", status=error.code().name)
            self._watching = False
            await asyncio.sleep(_PAUSE_S)

    async def live(self) -> Fleet:
        """What the router knows now. AioRpcError if it does not answer."""
        return await self._live.get("fleet", self._ask)

    async def admit(self, model: str, needs: Sequence[Need]) -> list[Worker]:
        """The workers of a model that may serve such a request. Refused with 404, 400 or 503."""
        workers = self.workers_of(model)
        if self._watching and workers and capability.judge(workers, needs, model) is None:
            return workers
        try:
            await self.live()
        except grpc.aio.AioRpcError:
            raise Refused(ROUTER_UNAVAILABLE) from None
        workers = self.workers_of(model)
        if not workers:
            raise Refused(model_not_found(model))
        problem = capability.judge(workers, needs, model)
        if problem is not None:
            raise Refused(problem)
        return workers

    def workers_of(self, model: str) -> list[Worker]:
        """The workers of a model, as last seen; empty if there is no such model."""
        found = self._models.get(model)
        if found is None:
            return []
        return [self._workers[each] for each in found.worker_ids if each in self._workers]

    async def _ask(self) -> Fleet:
        fleet = await self._router.fleet()
        self._take(fleet)
        return fleet

    def _take(self, fleet: Fleet) -> None:
        router_id, version = self._key
        # A live answer may overtake the watch; an older picture of the same router is not taken.
        if fleet.router_id == router_id and fleet.version < version:
            return
        self._key = (fleet.router_id, fleet.version)
        self._models = {model.name: model for model in fleet.models}
        self._workers = {worker.worker_id: worker for worker in fleet.workers}
