"""All routers that this edge knows, and the choice among them. The edge's app makes it.

Invariants: a request goes only to a router that can take it now, or waits for one, at most TURNOVER_S; what no worker can have
seen goes to another link, at most MAX_TURNS times; what was shown to nobody leaves a silent router for one that is heard, at
most MAX_MOVES times and within the same deadline (docs/decisions/0019, `routed_call.py`); nothing else is repeated; a router
that left the settings' names gets nothing new, and is let go when nothing of ours runs there.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import structlog
from speedinfer.router.v1.frame_pb2 import Frame
from speedinfer.router.v1.inference_pb2 import GenerateItem, HoldPlaceRequest, HoldPlaceResponse

from services.common.tasks import TaskSet
from services.edge import addresses, silence
from services.edge.addresses import Addresses
from services.edge.known_router import KnownRouter
from services.edge.metrics import Metrics
from services.edge.openai_request import Need
from services.edge.routed_call import RoutedCall

_log = structlog.get_logger(__name__)


class RouterPool:
    """The routers."""

    def __init__(self, targets: Sequence[str], metrics: Metrics, window_bytes: int, *, relays: bool) -> None:
        self._addresses = Addresses(targets)
        self._metrics = metrics
        self._window_bytes = window_bytes
        self._relays = relays
        # By address. What a target leads to, in the order of the targets.
        self._routers: dict[str, KnownRouter] = {}
        self._retired: list[KnownRouter] = []
        self._waiting: set[asyncio.Future[None]] = set()
        # Calls whose owner waits, and was shown nothing yet. They come and go by themselves.
        self.unanswered: set[RoutedCall[Any, Any]] = set()
        self._turn = 0
        self._turns: dict[str, int] = {}
        self._tasks = TaskSet()
        metrics.relay_links.set_function(lambda: sum(router.is_linked for router in self._routers.values()))
        metrics.routers_silent.set_function(lambda: sum(router.is_silent for router in self._routers.values()))

    async def start(self) -> None:
        """Find the routers and speak to them, until `close`."""
        await self._look_up()
        self._tasks.spawn(self._look_up_again(), "look-up-routers")
        self._tasks.spawn(self._listen(), "listen-to-routers")

    @property
    def routers(self) -> Sequence[KnownRouter]:
        """Those that the settings lead to now."""
        return list(self._routers.values())

    @property
    def heard(self) -> Sequence[KnownRouter]:
        """Of these, those that are not silent; all where all are."""
        return [each for each in self.routers if not each.is_silent] or self.routers

    @property
    def first(self) -> KnownRouter:
        """The one that operators' calls go to."""
        return next(iter(self._routers.values()))

    def choose(self, among: Sequence[tuple[KnownRouter, int]]) -> KnownRouter | None:
        """Of those that can take a request now the one with the fewest open for its weight; in turn where that is even. One
        that is silent is chosen only where all are."""
        ready = [(router, weight) for router, weight in among if router.is_ready]
        ready = [each for each in ready if not each[0].is_silent] or ready
        if not ready:
            return None
        if len(ready) == 1:
            return ready[0][0]
        chosen, _ = min(
            ready, key=lambda each: ((each[0].open + 1) / max(each[1], 1), self._turns.get(each[0].address, 0))
        )
        self._turn += 1
        self._turns[chosen.address] = self._turn
        return chosen

    def generate(self, router: KnownRouter, item: GenerateItem) -> RoutedCall[GenerateItem, Frame]:
        """Dispatch a request to a router, or to another that knows its model where that one cannot take it."""
        return RoutedCall(self, router, item, KnownRouter.generate, _begun)

    def hold_place(
        self, router: KnownRouter, request: HoldPlaceRequest
    ) -> RoutedCall[HoldPlaceRequest, HoldPlaceResponse]:
        """Wait for a place at a router, or at another."""
        return RoutedCall(self, router, request, KnownRouter.hold_place, lambda _: 0)

    def find(self, preferred: KnownRouter, model: str, needs: Sequence[Need]) -> KnownRouter | None:
        """The preferred router if it can take a request now, else another that knows the model; for one that is silent only a
        router that is heard and has a worker that may take the request now."""
        if preferred.is_ready:
            return (self._stand_in(model, needs) if preferred.is_silent else None) or preferred
        return self.choose([
            (router, len(known.workers))
            for router in self.routers
            if (known := router.picture.workers_of(model)) is not None
        ])  # fmt: skip

    def change(self) -> asyncio.Future[None]:
        """A future that is done when a router has come or gone. `forget` it afterwards."""
        change = asyncio.get_running_loop().create_future()
        self._waiting.add(change)
        return change

    def forget(self, change: asyncio.Future[None]) -> None:
        """Nobody waits for it any more."""
        self._waiting.discard(change)

    async def close(self) -> None:
        """Break off what runs."""
        await self._tasks.cancel()
        for router in [*self._routers.values(), *self._retired]:
            await router.close()

    def _stand_in(self, model: str, needs: Sequence[Need]) -> KnownRouter | None:
        """Who takes what a silent router should have done."""
        return self.choose([
            (router, len(known.workers))
            for router in self.routers
            if not router.is_silent
            and (known := router.picture.workers_of(model)) is not None
            and known.judge(needs) is None
        ])  # fmt: skip

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(silence.TICK_S)
            now_s = loop.time()
            # Each is listened to, whoever is silent before it.
            silent = [router for router in [*self._routers.values(), *self._retired] if router.listen(now_s)]
            if silent:
                self._move_on()

    def _move_on(self) -> None:
        """What may leave a silent router does, where another can take it."""
        there_is_one: dict[tuple[str, tuple[Need, ...]], bool] = {}
        for call in [each for each in self.unanswered if each.may_move]:
            wanted = (call.model, tuple(call.needs))
            if wanted not in there_is_one:
                there_is_one[wanted] = self._stand_in(*wanted) is not None
            if there_is_one[wanted]:
                call.move()
                self._metrics.router_moves.inc()

    def _changed(self) -> None:
        for change in self._waiting:
            if not change.done():
                change.set_result(None)

    def _know(self, addresses: Sequence[str]) -> list[KnownRouter]:
        """From now on these are the routers; answers the new ones."""
        known, new = self._routers, []
        self._routers = {}
        for address in addresses:
            if address in self._routers:
                continue
            router = known.pop(address, None)
            if router is None:
                router = KnownRouter(address, self._metrics, self._window_bytes, self._changed, relays=self._relays)
                self._metrics.relay_open.labels(address).set_function(lambda router=router: router.open)  # type: ignore[misc]
                new.append(router)
            self._routers[address] = router
        for router in known.values():
            router.retired = True
            self._metrics.relay_open.remove(router.address)
            self._turns.pop(router.address, None)
            self._retired.append(router)
        return new

    async def _look_up(self) -> None:
        for router in self._know(await self._addresses.look_up()):
            _log.info("router_found", router=router.address)
            router.start()

    async def _look_up_again(self) -> None:
        while True:
            await asyncio.sleep(addresses.LOOK_UP_EVERY_S)
            await self._look_up()
            await self._let_go()

    async def _let_go(self) -> None:
        for router in [each for each in self._retired if not each.open]:
            self._retired.remove(router)
            _log.info("router_gone", router=router.address)
            await router.close()


def _begun(frame: Frame) -> int:
    """See RoutedCall: that a worker has begun is superseded by the next one that has."""
    return frame.accepted.attempt
