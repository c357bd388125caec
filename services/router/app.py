"""The router as a whole: its parts put together, started and drained. `main.py` runs it in a process, tests in theirs."""

import asyncio
import random
from random import Random

import structlog
from speedinfer.router.v1 import (
    inference_pb2,
    inference_pb2_grpc,
    registry_pb2,
    registry_pb2_grpc,
    relay_pb2,
    relay_pb2_grpc,
)

from services.common import admin_token, ids, rpc
from services.common.errors import ConfigurationError
from services.common.handover import Listeners, Predecessor
from services.common.settings import Settings
from services.common.tasks import TaskSet
from services.router.counting import Counting
from services.router.discovery import sources
from services.router.discovery.finder import Finder
from services.router.dispatch import Dispatcher
from services.router.fleet import FleetView
from services.router.following import Following
from services.router.inference_servicer import InferenceServicer
from services.router.intake import Gate
from services.router.metrics import Metrics
from services.router.networks import Networks
from services.router.places import Places
from services.router.probe import Prober
from services.router.registrar import Registrar
from services.router.registry import Registry
from services.router.registry_servicer import RegistryServicer
from services.router.relay_servicer import RelayServicer
from services.router.roster import Roster
from services.router.store.file import FileStore
from services.router.store.open import shared_store_of
from services.router.worker import Worker

_log = structlog.get_logger(__name__)

INFERENCE = inference_pb2.DESCRIPTOR.services_by_name["InferenceService"].full_name
REGISTRY = registry_pb2.DESCRIPTOR.services_by_name["WorkerRegistryService"].full_name
RELAY = relay_pb2.DESCRIPTOR.services_by_name["RelayService"].full_name
# What is left of calls when all answers have ended: health watches and the like.
STOP_S = 2.0
# How long the workers that are brought back are waited for before the router says that it is there.
FIRST_LOOK_S = 2.0


class Router:
    """One router. Must be made and used in the same running loop."""

    def __init__(self, settings: Settings, *, chance: Random | None = None) -> None:
        self._settings = settings
        limits = settings.router.limits
        # Spreads load and probes; nothing secret hangs on it.
        chance = chance or random.Random()  # noqa: S311
        self.registry = Registry()
        self.metrics = Metrics()
        loop = asyncio.get_running_loop()
        self.metrics.tasks.set_function(lambda: len(asyncio.all_tasks(loop)))
        self.metrics.in_flight.set_function(lambda: sum(worker.in_flight for worker in self.registry))
        self.fleet = FleetView(self.registry, ids.uuid7())
        places = Places(self.registry, chance, limits)
        self.metrics.waiting.set_function(lambda: places.waiting)
        counting = Counting(self.registry, limits.max_counts_per_worker, self.metrics, chance)
        self.dispatcher = Dispatcher(self.registry, places, counting, limits, self.metrics, chance)
        networks = Networks(settings.router.allowed_networks)
        self._roster = Roster(self.registry, self.fleet, places, Prober(limits, chance), limits, networks)
        shared = shared_store_of(settings)
        store = shared or FileStore(settings.registry_path)
        self.registrar = Registrar(self._roster, store, limits, shared=shared is not None)
        self._finder = Finder(self._roster, sources.read_all(settings.discover, limits.discover_interval_s), limits)
        self.following: Following | None = None
        if shared is not None:
            self.following = Following(
                self.fleet.router_id,
                shared,
                self.registrar,
                self._roster,
                self.metrics,
                self._registry_reachable,
                lambda: places.waiting,
            )
        token = admin_token.load_or_make(settings.token, settings.data_dir)
        self._server = rpc.Server([rpc.ErrorStatuses(), rpc.AdminGate(token, [REGISTRY])], can_share_port=True)
        gate = Gate(self.dispatcher, places, limits.queue_wait_s)
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(
            InferenceServicer(gate, self.fleet, counting), self._server.grpc
        )
        self._relay = RelayServicer(self.fleet.router_id, gate, self.metrics)
        relay_pb2_grpc.add_RelayServiceServicer_to_server(self._relay, self._server.grpc)
        registry_pb2_grpc.add_WorkerRegistryServiceServicer_to_server(
            RegistryServicer(self.registrar, self._running), self._server.grpc
        )
        self._departure = TaskSet()
        self._telling = TaskSet()
        self._server.offers(INFERENCE, RELAY, REGISTRY)

    async def start(self, predecessor: Predecessor | None = None) -> int:
        """Bring the workers back, listen, and answer the port. A predecessor's registrations are ours to write once it has
        told us that we may take its place; it serves until we do."""
        metrics_listen = self._settings.router.metrics_listen
        await self.registrar.restore(self._settings.workers)
        if self.following is not None:
            self.following.start()
        await self._finder.start()
        if metrics_listen and predecessor is None:
            self.metrics.serve(metrics_listen)
        # Whoever finds the router there finds its workers, too; one that does not answer holds it up only so long.
        await self.registrar.all_seen(min(FIRST_LOOK_S, self._settings.router.limits.check_timeout_s))
        if self.following is not None:
            await self.following.settled(FIRST_LOOK_S)
        port = await self._server.start(self._settings.router.listen, beside=predecessor is not None)
        if predecessor is not None:
            await predecessor.dismiss()
            if metrics_listen:
                self._serve_metrics(metrics_listen)
        _log.info("listening", address=self._settings.router.listen, port=port, workers=len(self.registry))
        return port

    def _running(self, worker: Worker) -> int | None:
        return worker.in_flight if self.following is None else self.following.running(worker)

    def _registry_reachable(self, reachable: bool) -> None:
        """Changes are refused while it is not; requests go on."""
        self._telling.spawn(self._server.set_able(REGISTRY, reachable), "tell-health")

    def _serve_metrics(self, address: str) -> None:
        """As a successor, for which there is no way back any more: without metrics where they cannot be had."""
        try:
            self.metrics.serve(address)
        except ConfigurationError as error:
            _log.error("metrics_not_served", address=address, error=str(error))

    def listeners(self) -> Listeners:
        """See handover.Service: none, since gRPC takes no sockets; a successor listens at the same port beside it."""
        return {}

    async def prepare(self) -> None:
        """See handover.Service."""
        await self.registrar.freeze()

    async def resume(self) -> None:
        """See handover.Service."""
        self.registrar.thaw()

    async def leave(self) -> None:
        """See handover.Service: no new calls from here on; those that run do so to their own deadlines."""
        self.registrar.supersede()
        if self.following is not None:
            self.following.leave()
        longest_s = self._settings.edge.limits.request_timeout_s + STOP_S
        self._departure.spawn(self._server.drain(longest_s), "leave")
        # The edges' next links find the successor, or look again at once where they still found us.
        self._relay.leave()
        # Watchers have nothing to see here any more, and would keep us.
        self.fleet.close()
        await asyncio.to_thread(self.metrics.close)

    async def linger(self, stop: asyncio.Event) -> None:
        """See handover.Service."""
        leaving = list(self._departure)
        if not leaving:
            return
        stopped = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait([stopped, *leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()

    async def drain(self) -> None:
        """Say that no more work is wanted, let running answers end within their bound, and stop."""
        await self._server.set_serving(False)
        if self.following is not None:
            self.following.leave()
        self._relay.leave()
        # New requests are still answered, with the word that the router is draining, until the old ones have ended.
        await self.dispatcher.drain(self._settings.router.limits.drain_s)
        self.fleet.close()
        await self._server.drain(STOP_S)
        if self.following is not None:
            await self.following.close()
        await self._finder.close()
        await self._telling.cancel()
        await self._roster.close()
        await self.registrar.close()
        await asyncio.to_thread(self.metrics.close)
