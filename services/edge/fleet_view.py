"""The edge's picture of all routers' workers: kept current by watches, asked live where it would say no.

A model that was registered a moment ago must not be a 404 because the watch has not told yet, so every "no" is checked
with one live call to each router that concurrent requests share. A model exists where any router knows it; a request goes to a
router that does.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
from speedinfer.router.v1.fleet_pb2 import Fleet

from services.edge import capability, fleet_picture
from services.edge.coalesce import Shared
from services.edge.known_router import KnownRouter
from services.edge.model_workers import ModelWorkers
from services.edge.openai_errors import ROUTER_UNAVAILABLE, Refused, model_not_found
from services.edge.openai_request import Need
from services.edge.router_pool import RouterPool


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request is to go: a router, and the workers of its model there."""

    router: KnownRouter
    workers: ModelWorkers


class FleetView:
    """Models and their workers."""

    def __init__(self, routers: RouterPool) -> None:
        self._routers = routers
        self._live: Shared[Fleet] = Shared()

    async def live(self) -> Fleet:
        """What the routers know now, together. AioRpcError if none of them answers."""
        return await self._live.get("fleet", self._ask)

    async def admit(self, model: str, needs: Sequence[Need]) -> Route:
        """Where a request of a model, with such needs, goes. Refused with 404, 400 or 503."""
        watched = [router for router in self._routers.routers if router.watched]
        route = self._route(watched, model, needs)
        if route is not None:
            return route
        try:
            await self.live()
        except grpc.aio.AioRpcError:
            raise Refused(ROUTER_UNAVAILABLE) from None
        route = self._route(self._routers.routers, model, needs)
        if route is not None:
            return route
        known = [found for router in self._routers.routers if (found := router.picture.workers_of(model)) is not None]
        if not known:
            raise Refused(model_not_found(model))
        # No router has a worker for it; of all together, whose every need some router may meet, none is in service.
        workers = [worker for found in known for worker in found.workers]
        raise Refused(capability.judge(workers, needs, model) or ROUTER_UNAVAILABLE)

    def _route(self, routers: Sequence[KnownRouter], model: str, needs: Sequence[Need]) -> Route | None:
        fit: dict[KnownRouter, ModelWorkers] = {}
        for router in routers:
            workers = router.picture.workers_of(model)
            if workers is not None and workers.judge(needs) is None:
                fit[router] = workers
        if not fit:
            return None
        chosen = self._routers.choose([(router, workers.healthy) for router, workers in fit.items()])
        if chosen is None:
            # None of them can take it now; the dispatch waits a little for one that can.
            chosen = next(iter(fit))
        return Route(chosen, fit[chosen])

    async def _ask(self) -> Fleet:
        answers = await asyncio.gather(*(router.live() for router in self._routers.heard), return_exceptions=True)
        fleets = [answer for answer in answers if isinstance(answer, Fleet)]
        if not fleets:
            raise next(answer for answer in answers if isinstance(answer, BaseException))
        return fleet_picture.together(fleets) if len(answers) > 1 else fleets[0]
