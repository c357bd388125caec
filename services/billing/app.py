"""The service as one object: built from settings, started, drained. `main.py` and tests use it."""

import asyncio

from prometheus_client import start_http_server
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
from services.billing.store.open import open_store
from services.common import admin_token, listen, rpc
from services.common.settings import Settings
from services.common.tasks import TaskSet

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
)


class Billing:
    """One billing service. `clock` is for tests."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self.metrics = Metrics()
        self._tasks = TaskSet()

    async def start(self) -> int:
        """Open the store, take up the open holds, serve; answers the port. ConfigurationError, StoreError or OSError
        where that cannot be."""
        settings, limits = self._settings, self._settings.billing.limits
        token = admin_token.load_or_make(settings.token, settings.data_dir)
        self._store = await asyncio.to_thread(open_store, settings.database_url, self._clock.wall_ms)
        try:
            self._engine = Engine(
                self._store,
                Leases(_ms(limits.lease_s)),
                self._clock,
                self.metrics,
                max_queue=limits.max_queue,
                max_batch=limits.max_batch,
            )
            self._engine.start()
        except BaseException:
            self._store.close()
            raise
        self._reading = Reading(self._store, threads=READ_THREADS, max_waiting=MAX_WAITING_READS)
        self._audits = Reading(self._store, threads=1, max_waiting=MAX_WAITING_AUDITS)
        self._expiry = Expiry(self._engine, self.metrics, limits.expiry_interval_s)
        self._server = rpc.Server([rpc.AdminGate(token, _GATED), rpc.ErrorStatuses()])
        self._metrics_server = None
        try:
            self._add_services()
            if settings.billing.metrics_listen:
                host, port = listen.split(settings.billing.metrics_listen, "billing.metrics_listen")
                self._metrics_server = start_http_server(port, host, self.metrics.registry)
            port = await self._server.start(settings.billing.listen)
        except BaseException:
            await self.drain()
            raise
        self._tasks.spawn(self._expiry.run(), "expiry")
        return port

    async def drain(self) -> None:
        """Take nothing new, finish what runs, write what waits, close."""
        await self._server.drain(self._settings.billing.limits.drain_s)
        await self._tasks.cancel()
        await self._engine.stop()
        await self._reading.close()
        await self._audits.close()
        self._store.close()
        if self._metrics_server is not None:
            server, thread = self._metrics_server
            await asyncio.to_thread(server.shutdown)
            server.server_close()
            thread.join()

    async def sweep(self) -> int:
        """Let what is over lapse now; answers how many did."""
        return await self._expiry.sweep()

    def _add_services(self) -> None:
        limits = self._settings.billing.limits
        rules = Rules(id_age_days=limits.id_age_days, after_deadline_ms=_ms(limits.lease_after_deadline_s))
        intake = Intake(self._engine, limits.max_items_per_call)
        reading, clock, server = self._reading, self._clock, self._server.grpc
        reservation_pb2_grpc.add_ReservationServiceServicer_to_server(
            ReservationServicer(intake, rules, self.metrics), server
        )
        access_pb2_grpc.add_AccessServiceServicer_to_server(AccessServicer(reading, intake, clock), server)
        account_pb2_grpc.add_AccountServiceServicer_to_server(AccountServicer(intake, reading, rules), server)
        key_pb2_grpc.add_KeyServiceServicer_to_server(KeyServicer(intake, reading, rules, clock), server)
        price_pb2_grpc.add_PriceServiceServicer_to_server(PriceServicer(intake, reading, rules, clock), server)
        report_pb2_grpc.add_ReportServiceServicer_to_server(ReportServicer(reading, self._audits, clock), server)
        self._server.offers(*_OPEN, *_GATED)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
