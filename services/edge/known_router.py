"""A router that this edge knows, at one address: its picture of workers, and the link to it. `router_pool.py` has them all.

Invariants: at most one link takes new requests, and one that leaves is replaced at once; a router that does not answer is tried
again, at most once a second; a router without the relay is spoken to in calls of their own.
"""

import asyncio
from collections.abc import Callable
from weakref import WeakSet

import grpc
import structlog
from speedinfer.router.v1.fleet_pb2 import Fleet
from speedinfer.router.v1.frame_pb2 import Frame
from speedinfer.router.v1.inference_pb2 import GenerateItem, GenerateResponse, HoldPlaceRequest, HoldPlaceResponse

from services.common import relay_terms
from services.common.tasks import TaskSet
from services.edge.fleet_picture import FleetPicture
from services.edge.metrics import Metrics
from services.edge.relay_call import RelayCall
from services.edge.relay_link import LinkState, RelayLink
from services.edge.router_call import RouterCall
from services.edge.router_client import DEADLINE_SLACK_S, RouterClient
from services.edge.silence import Verdict

_log = structlog.get_logger(__name__)
_WATCH_PAUSE_S = 0.2
# Between tries: the first soon, since a successor is there within moments; then doubled.
FIRST_PAUSE_S, MAX_PAUSE_S = 0.05, 1.0
# How often a router without the relay is asked whether it has it now.
ASK_AGAIN_S = 5.0


class PlainFrames:
    """Frames of a call of its own, taken as those of a relay are."""

    def __init__(self, call: RouterCall[GenerateResponse], link: RelayLink | None) -> None:
        """`link`: the router's relay, where it has one."""
        self._call = call
        self._link = link

    @property
    def is_silent(self) -> bool:
        """See RelayCall."""
        return self._link is not None and self._link.is_silent

    async def take(self) -> list[Frame]:
        """See RelayCall."""
        return [response.frame for response in await self._call.take()]

    def cancel(self) -> None:
        """See RelayCall."""
        self._call.cancel()

    async def close(self) -> None:
        """See RelayCall."""
        await self._call.close()


FrameCall = RelayCall[Frame] | PlainFrames
PlaceCall = RelayCall[HoldPlaceResponse] | RouterCall[HoldPlaceResponse]


class KnownRouter:
    """One router."""

    def __init__(
        self, address: str, metrics: Metrics, window_bytes: int, changed: Callable[[], None], *, relays: bool
    ) -> None:
        """`changed` is called whenever it can take requests, or can no longer. `relays`: False for calls of their own only."""
        self.address = address
        self.client = RouterClient(address)
        self.picture = FleetPicture()
        self.watched = False
        # Gone from where the settings lead: nothing new goes to it.
        self.retired = False
        self._metrics = metrics
        self._window_bytes = window_bytes
        self._changed = changed
        self._plain = not relays
        self._relays = relays
        self._link: RelayLink | None = None
        self._links: dict[RelayLink, asyncio.Task[None]] = {}
        self._plain_calls: WeakSet[PlainFrames | RouterCall[HoldPlaceResponse]] = WeakSet()
        self._running = TaskSet()
        self._tasks = TaskSet()

    def start(self) -> None:
        """Watch it, and keep a link to it, until `close`."""
        self._tasks.spawn(self._watch(), "watch-router")
        if self._relays:
            self._tasks.spawn(self._keep_link(), "keep-relay")

    @property
    def is_ready(self) -> bool:
        """Whether a request can go to it now."""
        return not self.retired and (self._plain or self.is_linked)

    @property
    def is_linked(self) -> bool:
        """Whether there is a link that takes requests. It is asked itself: it may have learned in this very turn of the
        loop that the router leaves, and `_keep_link` hears of it in the next."""
        return self._link is not None and self._link.state is LinkState.READY

    @property
    def is_silent(self) -> bool:
        """Nothing is heard of whoever would take a request now: it takes none while another router can."""
        return self._link is not None and self._link.is_silent

    def listen(self, now_s: float) -> bool:
        """Look who is heard on each link; whether somebody is silent. To be called every silence.TICK_S."""
        for link in self._links:
            verdict = link.listen(now_s)
            if verdict is Verdict.SILENT:
                _log.warning("router_silent", router=self.address, router_id=link.router_id, open=len(link))
            elif verdict is Verdict.BACK:
                _log.info("router_heard_again", router=self.address, router_id=link.router_id)
        return any(link.is_silent for link in self._links)

    @property
    def open(self) -> int:
        """Requests and places that are open there."""
        return sum(map(len, self._links)) + len(self._plain_calls)

    def generate(self, item: GenerateItem) -> FrameCall:
        """Dispatch a request. The router must be ready."""
        if self._link is not None and self.is_linked and (item_bytes := item.ByteSize()) <= relay_terms.MAX_START_BYTES:
            return self._link.generate(item, item_bytes, item.context.remaining_ms / 1000 + DEADLINE_SLACK_S)
        call = PlainFrames(self.client.generate(item), self._link)
        self._plain_calls.add(call)
        return call

    def hold_place(self, request: HoldPlaceRequest) -> PlaceCall:
        """Wait for a place. The router must be ready."""
        if self._link is not None and self.is_linked:
            return self._link.hold_place(request, request.context.remaining_ms / 1000 + DEADLINE_SLACK_S)
        call = self.client.hold_place(request)
        self._plain_calls.add(call)
        return call

    async def live(self) -> Fleet:
        """What it knows now. AioRpcError if it does not answer."""
        fleet = await self.client.fleet()
        self.picture.take(fleet)
        return fleet

    async def close(self) -> None:
        """Break off what runs, and forget it."""
        await self._tasks.cancel()
        await self._running.cancel()
        await self.client.close()

    async def _watch(self) -> None:
        while True:
            try:
                async for answer in self.client.watch():
                    self.watched = True
                    self.picture.take(answer.fleet)
            except grpc.aio.AioRpcError as error:
                if self.watched:
                    _log.warning("fleet_watch_lost", router=self.address, status=error.code().name)
            self.watched = False
            await asyncio.sleep(_WATCH_PAUSE_S)

    async def _keep_link(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self.retired:
            link = RelayLink(self._metrics, self._window_bytes)
            self._links[link] = running = self._running.spawn(link.run(self.client.relay), "relay-link")
            running.add_done_callback(lambda _, link=link: self._links.pop(link, None))  # type: ignore[misc]
            await link.past(LinkState.OPENING)
            if link.state is LinkState.READY:
                pause_s = FIRST_PAUSE_S
                self._use(link)
                await link.past(LinkState.READY)
                self._use(None)
                if link.is_over:
                    _log.warning("relay_lost", router=self.address, status=link.code.name if link.code else None)
                continue
            if link.is_over and link.code is grpc.StatusCode.UNIMPLEMENTED:
                self._speak_plainly()
                await asyncio.sleep(ASK_AGAIN_S)
                continue
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, MAX_PAUSE_S)

    def _use(self, link: RelayLink | None) -> None:
        self._link = link
        if link is not None:
            self._plain = False
            _log.info("relay_ready", router=self.address, router_id=link.router_id)
        self._changed()

    def _speak_plainly(self) -> None:
        if not self._plain:
            _log.info("router_without_relay", router=self.address)
        self._plain = True
        self._changed()
