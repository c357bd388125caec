"""What operators do to workers: register, check, drain, remove, and bring back after a restart. The registry servicer and the
app use it.

Durable before it is visible: a change is in the store when it is answered. A replaced or removed worker's transport closes
after its last answer.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import structlog
from speedinfer.router.v1.fleet_pb2 import FEATURE_CHAT, WorkerStatus

from services.common.errors import ConfigurationError, NotFound, TurnedAway, Unavailable
from services.common.settings import RouterLimits
from services.common.tasks import TaskSet
from services.router import registration as registrations
from services.router import template_allowance
from services.router.breaker import Breaker
from services.router.fleet import FleetView
from services.router.health import Health, Thresholds
from services.router.networks import EVERYWHERE, Networks
from services.router.places import Places
from services.router.probe import Prober
from services.router.registration import MAX_SHOWN, InvalidRegistration, Registration
from services.router.registry import Registry
from services.router.store.port import Record, Store
from services.router.transport import factory
from services.router.worker import Load, Worker

_log = structlog.get_logger(__name__)


class Registrar:
    """Changes the registry, keeps it in the store, and keeps the workers looked at."""

    def __init__(
        self,
        registry: Registry,
        store: Store,
        fleet: FleetView,
        places: Places,
        prober: Prober,
        limits: RouterLimits,
        networks: Networks = EVERYWHERE,
    ) -> None:
        self._registry = registry
        self._store = store
        self._fleet = fleet
        self._places = places
        self._prober = prober
        self._limits = limits
        self._networks = networks
        # Stored registrations that are not valid: kept in the store as they are, and shown nowhere.
        self._invalid: list[Record] = []
        self._tasks = TaskSet()
        # Workers with an open circuit -> the end of its rest.
        self._resting: dict[Worker, asyncio.TimerHandle] = {}
        self._closed = False
        self._change = asyncio.Lock()
        self._superseded = False

    async def restore(self, configured: list[dict[str, Any]]) -> None:
        """Bring back what was stored, and what the settings register, which replaces what has the same id. Nobody is waited
        for: each worker is looked at in the background. ConfigurationError if a registration in the settings is wrong; one in
        the store that is not valid (any more) stays there and is left out."""
        now = time.time()
        records: dict[str, Record] = {}
        for record in self._store.load():
            try:
                records[registrations.read(record.document, self._networks).worker_id] = record
            except InvalidRegistration as error:
                self._invalid.append(record)
                _log.error("stored_registration_invalid", worker_id=_id_of(record)[:128], why=str(error))
        for number, document in enumerate(configured):
            try:
                worker_id = registrations.read(document, self._networks).worker_id
            except InvalidRegistration as error:
                raise ConfigurationError(f"workers[{number}]: {error}") from None
            old = records.get(worker_id)
            # A worker that an operator drains stays so, for as long as its registration is the same.
            draining = old.draining if old is not None and dict(old.document) == document else False
            records[worker_id] = Record(document, old.registered_at_s if old else now, draining)
        for record in records.values():
            registration = registrations.read(record.document, self._networks)
            self._put(self._worker(registration, Load(), record.registered_at_s, record.draining))
        if configured:
            await self._save()

    async def all_seen(self, within_s: float) -> bool:
        """Wait until every worker was looked at once; False if that takes longer."""
        try:
            async with asyncio.timeout(within_s):
                for worker in list(self._registry):
                    await worker.seen.wait()
        except TimeoutError:
            return False
        return True

    async def register(self, document: Mapping[str, Any]) -> Worker:
        """Check a worker and store it. InvalidRegistration if the registration is wrong in itself."""
        registration = registrations.read(document, self._networks)
        if len(self._registry) >= self._limits.max_workers and self._registry.get(registration.worker_id) is None:
            raise Unavailable(f"{self._limits.max_workers} workers are registered already; that is the bound")
        worker = self._worker(registration, Load(), time.time(), draining=False)
        try:
            finding, last = await self._prober.check(worker)
        except BaseException:
            await worker.transport.close()
            raise
        worker.health.on_check(finding)
        worker.last_probe = last
        try:
            async with self._changing():
                old = self._registry.get(registration.worker_id)
                worker.load = self._registry.load_of(registration.worker_id)
                if old is not None:
                    worker.registered_at_s = old.registered_at_s
                await self._save(instead=worker)
                self._put(worker)
        except BaseException:
            if self._registry.get(worker.worker_id) is not worker:
                await worker.transport.close()
            raise
        status = WorkerStatus.Name(worker.health.status)
        _log.info("worker_registered", worker_id=worker.worker_id, status=status, error=finding.error)
        return worker

    async def check(self, document: Mapping[str, Any]) -> tuple[Worker, tuple[str, ...]]:
        """A worker as it would be after registration, and what was found beyond that; nothing is kept."""
        worker = self._worker(registrations.read(document, self._networks), Load(), time.time(), draining=False)
        measured: tuple[str, ...] = ()
        try:
            finding, worker.last_probe = await self._prober.check(worker)
            worker.health.on_check(finding)
            if not finding.error and FEATURE_CHAT in worker.transport.features:
                model = worker.registration.supported_models[0]
                async with asyncio.timeout(self._limits.check_timeout_s):
                    measured = await template_allowance.measure(worker.transport, model)
        except TimeoutError:
            measured = ("template: not measured in time",)
        finally:
            await worker.transport.close()
        return worker, (*worker.health.finding.findings, *measured)

    def get(self, worker_id: str) -> Worker:
        """One worker. NotFound if there is none."""
        worker = self._registry.get(worker_id)
        if worker is None:
            raise NotFound(f"no worker {worker_id[:MAX_SHOWN]!r} is registered", field="worker_id")
        return worker

    def all(self) -> list[Worker]:
        """All workers, sorted by id."""
        return list(self._registry)

    async def drain(self, worker_id: str) -> Worker:
        """Stop new work for a worker."""
        async with self._changing():
            worker = self.get(worker_id)
            worker.drain()
            await self._save()
        return worker

    async def remove(self, worker_id: str) -> None:
        """Forget a worker; its running requests finish."""
        async with self._changing():
            if self._registry.get(worker_id) is None and any(_id_of(record) == worker_id for record in self._invalid):
                await self._save(without=worker_id)
                return
            worker = self.get(worker_id)
            await self._save(without=worker_id)
            self._registry.remove(worker_id)
            self._retire(worker)
            self._fleet.changed(worker_id, False)
        _log.info("worker_removed", worker_id=worker_id)

    async def freeze(self) -> None:
        """Change nothing that is stored until `thaw`; changes that are asked for wait. A successor is reading."""
        await self._change.acquire()

    def thaw(self) -> None:
        """The successor did not come to be."""
        self._change.release()

    def supersede(self) -> None:
        """The stored registrations are the successor's from now on; what waited or comes later is turned away."""
        self._superseded = True
        self._change.release()

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        async with self._change:
            if self._superseded:
                raise TurnedAway("this router has a successor; ask again")
            yield

    async def close(self) -> None:
        """Stop looking at workers and close their connections."""
        self._closed = True
        for timer in self._resting.values():
            timer.cancel()
        self._resting.clear()
        await self._tasks.cancel()
        for worker in self._registry:
            await worker.transport.close()

    def _worker(self, registration: Registration, load: Load, registered_at_s: float, draining: bool) -> Worker:
        limits = self._limits
        return Worker(
            registration,
            factory.make(
                registration.endpoint,
                registration.config,
                registration.supported_models,
                registration.runtime,
                limits,
                self._networks,
            ),
            Health(
                Thresholds(limits.probes_to_go_down, limits.probes_to_come_back),
                draining,
                checks_read_usage=registration.config.check == "token",
            ),
            Breaker(limits.failures_to_open_circuit, limits.circuit_open_s),
            load,
            registered_at_s,
            self._changed,
        )

    def _changed(self, worker: Worker, load_only: bool) -> None:
        self._fleet.changed(worker.worker_id, load_only)
        self._places.offer(worker)
        if not load_only:
            self._wait_for_rest(worker)

    def _wait_for_rest(self, worker: Worker) -> None:
        """An open circuit closes by time alone: nothing else would tell those who wait or watch."""
        loop = asyncio.get_running_loop()
        until = worker.rests_until(loop.time())
        if until is not None and worker not in self._resting and not self._closed:
            # A hair later, since the clock of timers may be coarser.
            self._resting[worker] = loop.call_at(until + 0.001, self._rested, worker)

    def _rested(self, worker: Worker) -> None:
        del self._resting[worker]
        self._changed(worker, False)

    def _put(self, worker: Worker) -> None:
        old = self._registry.put(worker)
        if old is not None:
            self._retire(old)
        self._tasks.spawn(self._prober.watch(worker), f"probe-{worker.worker_id}")
        self._fleet.changed(worker.worker_id, False)
        self._places.offer(worker)

    def _retire(self, worker: Worker) -> None:
        self._tasks.spawn(_close_when_idle(worker), f"retire-{worker.worker_id}")

    async def _save(self, *, instead: Worker | None = None, without: str = "") -> None:
        gone = instead.worker_id if instead is not None else without
        workers = [worker for worker in self._registry if worker.worker_id != gone]
        if instead is not None:
            workers.append(instead)
        records = [
            Record(worker.registration.document, worker.registered_at_s, worker.health.draining) for worker in workers
        ]
        # A registration that is valid replaces one of the same id that was not.
        replaced = {without, *(worker.worker_id for worker in workers)}
        invalid = [record for record in self._invalid if _id_of(record) not in replaced]
        records += invalid
        try:
            # It waits for a disk.
            await asyncio.to_thread(self._store.save, records)
        except OSError as error:
            raise Unavailable(f"the registrations cannot be stored: {error.strerror}") from error
        self._invalid = invalid


def _id_of(record: Record) -> str:
    return str(record.document.get("worker_id"))


async def _close_when_idle(worker: Worker) -> None:
    try:
        await worker.idle.wait()
    finally:
        await worker.transport.close()
