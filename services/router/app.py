"""The router as a whole: its parts put together, started and drained. `main.py` runs it in a process, tests in theirs."""

import asyncio
import random
from random import Random

import structlog
from speedinfer.router.v1 import inference_pb2, inference_pb2_grpc, registry_pb2, registry_pb2_grpc

from services.common import admin_token, ids, rpc
from services.common.settings import Settings
from services.router.dispatch import Dispatcher
from services.router.fleet import FleetView
from services.router.inference_servicer import InferenceServicer
from services.router.metrics import Metrics
from services.router.places import Places
from services.router.probe import Prober
from services.router.registrar import Registrar
from services.router.registry import Registry
from services.router.registry_servicer import RegistryServicer
from services.router.store.file import FileStore
from services.router.store.port import Store

_log = structlog.get_logger(__name__)

INFERENCE = inference_pb2.DESCRIPTOR.services_by_name["InferenceService"].full_name
REGISTRY = registry_pb2.DESCRIPTOR.services_by_name["WorkerRegistryService"].full_name
# What is left of calls when all answers have ended: health watches and the like.
STOP_S = 2.0
# How long the workers that are brought back are waited for before the router says that it is there.
FIRST_LOOK_S = 2.0


class Router:
    """One router. Must be made and used in the same running loop."""

    def __init__(self, settings: Settings, *, store: Store | None = None, chance: Random | None = None) -> None:
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
        self.dispatcher = Dispatcher(self.registry, places, limits, self.metrics, chance)
        store = store or FileStore(settings.registry_path)
        self.registrar = Registrar(self.registry, store, self.fleet, places, Prober(limits, chance), limits)
        token = admin_token.load_or_make(settings.token, settings.data_dir)
        self._server = rpc.Server([rpc.ErrorStatuses(), rpc.AdminGate(token, [REGISTRY])])
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(
            InferenceServicer(self.dispatcher, self.fleet, places, limits.queue_wait_s), self._server.grpc
        )
        registry_pb2_grpc.add_WorkerRegistryServiceServicer_to_server(
            RegistryServicer(self.registrar), self._server.grpc
        )
        self._server.offers(INFERENCE, REGISTRY)

    async def start(self) -> int:
        """Bring the workers back, listen, and answer the port."""
        await self.registrar.restore(self._settings.workers)
        if self._settings.router.metrics_listen:
            self.metrics.serve(self._settings.router.metrics_listen)
        # Whoever finds the router there finds its workers, too; one that does not answer holds it up only so long.
        await self.registrar.all_seen(min(FIRST_LOOK_S, self._settings.router.limits.check_timeout_s))
        port = await self._server.start(self._settings.router.listen)
        _log.info("listening", address=self._settings.router.listen, port=port, workers=len(self.registry))
        return port

    async def drain(self) -> None:
        """Say that no more work is wanted, let running answers end within their bound, and stop."""
        await self._server.set_serving(False)
        # New requests are still answered, with the word that the router is draining, until the old ones have ended.
        await self.dispatcher.drain(self._settings.router.limits.drain_s)
        self.fleet.close()
        await self._server.drain(STOP_S)
        await self.registrar.close()
        await asyncio.to_thread(self.metrics.close)
