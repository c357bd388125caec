"""The service as one object: built from settings, started, drained. `main.py` and tests use it."""

import asyncio

import structlog
from speedinfer.billing.v1 import (
    access_pb2,
    access_pb2_grpc,
    account_pb2,
    account_pb2_grpc,
    key_pb2,
    key_pb2_grpc,
    price_pb2,
    price_pb2_grpc,
    report_pb2,
    report_pb2_grpc,
    reservation_pb2,
    reservation_pb2_grpc,
    seal_pb2,
    seal_pb2_grpc,
)

from services.billing.access_servicer import AccessServicer
from services.billing.account_servicer import AccountServicer
from services.billing.clock import Clock, SystemClock
from services.billing.engine import Engine
from services.billing.expiry import Expiry
from services.billing.intake import Intake
from services.billing.key_servicer import KeyServicer
from services.billing.lease import Leases
from services.billing.metrics import Metrics
from services.billing.price_servicer import PriceServicer
from services.billing.reading import Reading
from services.billing.report_servicer import ReportServicer
from services.billing.reservation_servicer import ReservationServicer
from services.billing.rules import Rules
from services.billing.seal_servicer import SealServicer
from services.billing.sealing import Sealing
from services.billing.store.open import foresee, open_store
from services.common import admin_token, rpc
from services.common.errors import ConfigurationError
from services.common.handover import Listeners, Predecessor
from services.common.metrics_listener import MetricsListener
from services.common.settings import Settings
from services.common.tasks import TaskSet

_log = structlog.get_logger(__name__)
# How long calls may still write once a successor waits for the ledger. Every write takes milliseconds.
LAST_WRITES_S = 2.0
# What else may pass before the ledger is free: the last commit, closing the database.
LOCK_MARGIN_S = 10.0
READ_THREADS = 2
MAX_WAITING_READS = 1_024
MAX_WAITING_AUDITS = 4

_OPEN = (
    reservation_pb2.DESCRIPTOR.services_by_name["ReservationService"].full_name,
    access_pb2.DESCRIPTOR.services_by_name["AccessService"].full_name,
)
_GATED = (
    account_pb2.DESCRIPTOR.services_by_name["AccountService"].full_name,
    key_pb2.DESCRIPTOR.services_by_name["KeyService"].full_name,
    price_pb2.DESCRIPTOR.services_by_name["PriceService"].full_name,
    report_pb2.DESCRIPTOR.services_by_name["ReportService"].full_name,
    seal_pb2.DESCRIPTOR.services_by_name["SealService"].full_name,
)


class Billing:
    """One billing service. `clock` is for tests."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self.metrics = Metrics()
        self._tasks = TaskSet()
        self._departure = TaskSet()
        self._writing = False

    async def start(self, predecessor: Predecessor | None = None) -> int:
        """Open the store, take up the open holds, serve; answers the port. ConfigurationError, StoreError or OSError
        where that cannot be. A predecessor has the ledger to itself until it has written its last."""
        settings, limits = self._settings, self._settings.billing.limits
        wait_s = 0.0
        if predecessor is not None:
            # Afterwards there is no way back.
            await asyncio.to_thread(foresee, settings.database_url)
            await predecessor.dismiss()
            wait_s = LAST_WRITES_S + LOCK_MARGIN_S
        token = admin_token.load_or_make(settings.token, settings.data_dir)
        self._store = await asyncio.to_thread(open_store, settings.database_url, self._clock.wall_ms, wait_s)
        try:
            self.engine = Engine(
                self._store,
                Leases(_ms(limits.lease_s)),
                self._clock,
                self.metrics,
                max_queue=limits.max_queue,
                max_batch=limits.max_batch,
            )
            self.metrics.sweeps.set_function(lambda: self.engine.sweeps)
            # It asks the database, which may be far away.
            await asyncio.to_thread(self.engine.start)
            self._writing = True
        except BaseException:
            await asyncio.to_thread(self._store.close)
            raise
        self._reading = Reading(self._store, threads=READ_THREADS, max_waiting=MAX_WAITING_READS)
        self._audits = Reading(self._store, threads=1, max_waiting=MAX_WAITING_AUDITS)
        # A silence of half a lease is taken for a time in which this process did not run, and no lease lapses after one.
        interval_s = min(limits.expiry_interval_s, limits.lease_s / 4)
        self._expiry = Expiry(self.engine, self.metrics, interval_s)
        self._sealing = Sealing(
            self.engine,
            self._audits,
            self._clock,
            self.metrics,
            settings.seal_key_path,
            settings.billing.seal_interval_s,
        )
        self._server = rpc.Server([rpc.AdminGate(token, _GATED), rpc.ErrorStatuses()])
        self._metrics_listener: MetricsListener | None = None
        try:
            self._add_services()
            try:
                self._serve_metrics()
            except ConfigurationError as error:
                if predecessor is None:
                    raise
                _log.error("metrics_not_served", address=settings.billing.metrics_listen, error=str(error))
            # Asked before anything new is taken.
            seal_in_s = await self._sealing.due_in_s()
            port = await self._server.start(settings.billing.listen)
        except BaseException:
            await self.drain()
            raise
        self._tasks.spawn(self._expiry.run(), "expiry")
        self._tasks.spawn(self._sealing.run(seal_in_s), "sealing")
        _log.info("serving", listen=settings.billing.listen, port=port)
        return port

    def _serve_metrics(self) -> None:
        if address := self._settings.billing.metrics_listen:
            self._metrics_listener = MetricsListener(address, "billing.metrics_listen", self.metrics.registry)

    async def drain(self) -> None:
        """Take nothing new, finish what runs, write what waits, close."""
        await self._server.drain(self._settings.billing.limits.drain_s)
        await self._stop_writing()
        await self._reading.close()
        await self._audits.close()
        await self._close_metrics()

    def listeners(self) -> Listeners:
        """See Service: there is none, since gRPC binds its own; the port is free when the ledger is."""
        return {}

    async def prepare(self) -> None:
        """See Service."""

    async def resume(self) -> None:
        """See Service."""

    async def leave(self) -> None:
        """See Service: no new calls from here on. What two cannot have is free after this, but for the ledger."""
        self._departure.spawn(self._server.drain(self._settings.billing.limits.drain_s), "leave")
        await self._close_metrics()

    async def linger(self, stop: asyncio.Event) -> None:
        """See Service: let go of the ledger as soon as the last write is on disk. Long questions, such as an export, go on
        in `drain`; nobody waits for them."""
        await self._departure.join(LAST_WRITES_S)
        await self._stop_writing()

    async def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            await self._tasks.cancel()
            await self.engine.stop()
            await asyncio.to_thread(self._store.close)

    async def _close_metrics(self) -> None:
        if self._metrics_listener is not None:
            listener, self._metrics_listener = self._metrics_listener, None
            await asyncio.to_thread(listener.close)

    async def sweep(self) -> int:
        """Let what is over lapse now; answers how many did."""
        return await self._expiry.sweep()

    async def seal_due_in_s(self) -> float:
        """How long until the ledger is sealed next."""
        return await self._sealing.due_in_s()

    def _add_services(self) -> None:
        limits = self._settings.billing.limits
        rules = Rules(id_age_days=limits.id_age_days, after_deadline_ms=_ms(limits.lease_after_deadline_s))
        intake = Intake(self.engine, limits.max_items_per_call)
        reading, clock, server = self._reading, self._clock, self._server.grpc
        key_path = self._settings.seal_key_path
        reservation_pb2_grpc.add_ReservationServiceServicer_to_server(
            ReservationServicer(intake, rules, self.metrics), server
        )
        access_pb2_grpc.add_AccessServiceServicer_to_server(AccessServicer(reading, intake, clock), server)
        account_pb2_grpc.add_AccountServiceServicer_to_server(AccountServicer(intake, reading, rules), server)
        key_pb2_grpc.add_KeyServiceServicer_to_server(KeyServicer(intake, reading, rules, clock), server)
        price_pb2_grpc.add_PriceServiceServicer_to_server(PriceServicer(intake, reading, rules, clock), server)
        report_pb2_grpc.add_ReportServiceServicer_to_server(
            ReportServicer(reading, self._audits, clock, key_path), server
        )
        seal_pb2_grpc.add_SealServiceServicer_to_server(SealServicer(self._sealing, reading, key_path), server)
        self._server.offers(*_OPEN, *_GATED)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
