"""All routers that this edge knows, and the choice among them. The edge's app makes it.

Invariants: a request goes only to a router that can take it now, or waits for one, at most TURNOVER_S; what no worker can have
seen goes to another link, at most MAX_TURNS times, and nothing else is repeated; a router that left the settings' names gets
nothing new, and is let go when nothing of ours runs there.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import grpc
import structlog
from speedinfer.router.v1.frame_pb2 import Frame
from speedinfer.router.v1.inference_pb2 import GenerateItem, HoldPlaceRequest, HoldPlaceResponse

from services.common import rpc
from services.common.tasks import TaskSet
from services.edge import addresses
from services.edge.addresses import Addresses
from services.edge.known_router import KnownRouter
from services.edge.metrics import Metrics
from services.edge.router_call import MAX_TURNS
from services.edge.router_lost import Lost, NotBegun

_log = structlog.get_logger(__name__)
Answer = TypeVar("Answer", covariant=True)


class Call(Protocol[Answer]):
    """A call to one router; see RelayCall."""

    async def take(self) -> Sequence[Answer]:
        """What came."""

    def cancel(self) -> None:
        """Give it up."""

    async def close(self) -> None:
        """Give it up, if it has not ended by itself."""


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
        self._turn = 0
        self._turns: dict[str, int] = {}
        self._tasks = TaskSet()
        metrics.relay_links.set_function(lambda: sum(router.is_linked for router in self._routers.values()))

    async def start(self) -> None:
        """Find the routers and speak to them, until `close`."""
        await self._look_up()
        self._tasks.spawn(self._look_up_again(), "look-up-routers")

    @property
    def routers(self) -> Sequence[KnownRouter]:
        """Those that the settings lead to now."""
        return list(self._routers.values())

    @property
    def first(self) -> KnownRouter:
        """The one that operators' calls go to."""
        return next(iter(self._routers.values()))

    def choose(self, among: Sequence[tuple[KnownRouter, int]]) -> KnownRouter | None:
        """Of those that can take a request now the one with the fewest open for its weight; in turn where that is even."""
        ready = [(router, weight) for router, weight in among if router.is_ready]
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

    def generate(self, router: KnownRouter, item: GenerateItem) -> "RoutedCall[Frame]":
        """Dispatch a request to a router, or to another that knows its model where that one cannot take it."""
        return RoutedCall(self, router, item.model, lambda each: each.generate(item))

    def hold_place(self, router: KnownRouter, request: HoldPlaceRequest) -> "RoutedCall[HoldPlaceResponse]":
        """Wait for a place at a router, or at another."""
        return RoutedCall(self, router, request.model, lambda each: each.hold_place(request))

    def find(self, preferred: KnownRouter, model: str) -> KnownRouter | None:
        """The preferred router if it can take a request now, else another that knows the model."""
        if preferred.is_ready:
            return preferred
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


class RoutedCall(Generic[Answer]):
    """A request on its way to a router, and then there."""

    def __init__(
        self, pool: RouterPool, preferred: KnownRouter, model: str, begin: Callable[[KnownRouter], Call[Answer]]
    ) -> None:
        self._pool = pool
        self._model = model
        # Until something came of it: from then on it is sent nowhere else, and what it would send is not kept.
        self._begin: Callable[[KnownRouter], Call[Answer]] | None = begin
        # Where it is, or is to go.
        self.router = preferred
        self._call: Call[Answer] | None = None
        self._change: asyncio.Future[None] | None = None
        self._turns = 0
        self._cancelled = False

    async def take(self) -> Sequence[Answer]:
        """What came; empty at the end, and after `cancel`. Lost if it ended otherwise."""
        while True:
            if self._call is None:
                assert self._begin is not None, "a call that was answered stays"
                router = await self._find()
                if router is None:
                    return []
                self.router = router
                self._call = self._begin(router)
            try:
                answers = await self._call.take()
            except NotBegun:
                self._call = None
                self._turns += 1
                # A router that answered has begun it, whatever it says later.
                if self._turns >= MAX_TURNS or self._begin is None:
                    raise Lost(grpc.StatusCode.UNAVAILABLE) from None
            else:
                self._begin = None
                return answers

    def cancel(self) -> None:
        """Give it up and wake whoever waits."""
        self._cancelled = True
        if self._call is not None:
            self._call.cancel()
        elif self._change is not None and not self._change.done():
            self._change.set_result(None)

    async def close(self) -> None:
        """Give it up, if it has not ended by itself."""
        self._cancelled = True
        if self._call is not None:
            await self._call.close()

    async def _find(self) -> KnownRouter | None:
        """A router that can take it, waited for a little. None if it was cancelled."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + rpc.TURNOVER_S
        while not self._cancelled:
            router = self._pool.find(self.router, self._model)
            if router is not None:
                return router
            if loop.time() >= until_s:
                raise Lost(grpc.StatusCode.UNAVAILABLE)
            change = self._change = self._pool.change()
            timer = loop.call_at(until_s, _settle, change)
            try:
                await change
            finally:
                timer.cancel()
                self._pool.forget(change)
                self._change = None
        return None


def _settle(change: asyncio.Future[None]) -> None:
    if not change.done():
        change.set_result(None)
