"""What operators do to workers: register, check, drain, remove, and bring back after a restart; and what other routers did,
where they share a registry. The registry servicer, the follower and the app use it.

Durable before it is visible: a change is in the store when it is answered, and stands here only then. What other routers stored
is read and taken up while no change of our own runs, so that what was read never goes back behind one.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import structlog
from speedinfer.router.v1.fleet_pb2 import FEATURE_CHAT, WorkerStatus

from services.common.errors import ConfigurationError, InvalidArgument, NotFound, TurnedAway, Unavailable
from services.common.settings import RouterLimits
from services.router import registration as registrations
from services.router import template_allowance
from services.router.registration import MAX_SHOWN, InvalidRegistration, Registration
from services.router.registry import Registry
from services.router.roster import Roster
from services.router.store.port import Picture, Record, Store, StoreError
from services.router.worker import Worker

_log = structlog.get_logger(__name__)
_Stored = TypeVar("_Stored")


class Registrar:
    """Changes the registry, and keeps it in the store."""

    def __init__(self, roster: Roster, store: Store, limits: RouterLimits, *, shared: bool = False) -> None:
        """`shared`: other routers change what is stored, too."""
        self._roster = roster
        self._registry: Registry = roster.registry
        self._store = store
        self._limits = limits
        self._shared = shared
        # Worker id -> the version of what another router put in its place, while that is checked.
        self._awaited: dict[str, int] = {}
        self._change = asyncio.Lock()
        self._frozen = False
        self._superseded = False

    async def restore(self, configured: list[dict[str, Any]]) -> None:
        """Bring back what was stored, and what the settings register, which replaces what has the same id. Nobody is waited
        for: each worker is looked at in the background. ConfigurationError if a registration in the settings is wrong; one in
        the store that is not valid (any more) stays there and is left out."""
        try:
            await self._store.open()
            picture = await self._store.load()
            records = {record.worker_id: record for record in picture.changed}
            for number, document in enumerate(configured):
                try:
                    worker_id = registrations.read(document, self._roster.networks).worker_id
                except InvalidRegistration as error:
                    raise ConfigurationError(f"workers[{number}]: {error}") from None
                old = records.get(worker_id)
                # A worker that an operator drains stays so, for as long as its registration is the same.
                if old is None or dict(old.document) != document:
                    records[worker_id] = await self._store.put(Record(document, time.time()))
        except StoreError as error:
            raise ConfigurationError(f"the registrations cannot be stored: {error}") from None
        for record, registration in self._valid(list(records.values())).values():
            self._put_unchecked(record, registration)

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
        registration = registrations.read(document, self._roster.networks)
        if len(self._registry) >= self._limits.max_workers and self._registry.get(registration.worker_id) is None:
            raise Unavailable(f"{self._limits.max_workers} workers are registered already; that is the bound")
        self._refuse_found(registration.worker_id)
        self._refuse_while_away()
        worker = self._roster.make(registration, time.time())
        try:
            await self._check(worker)
            async with self._changing():
                record = await _stored(self._store.put(Record(registration.document, worker.registered_at_s)))
                self._put(worker, record)
        except BaseException:
            if self._registry.get(worker.worker_id) is not worker:
                await worker.transport.close()
            raise
        status = WorkerStatus.Name(worker.health.status)
        _log.info("worker_registered", worker_id=worker.worker_id, status=status, error=worker.health.finding.error)
        return worker

    async def check(self, document: Mapping[str, Any]) -> tuple[Worker, tuple[str, ...]]:
        """A worker as it would be after registration, and what was found beyond that; nothing is kept."""
        worker = self._roster.make(registrations.read(document, self._roster.networks), time.time())
        measured: tuple[str, ...] = ()
        try:
            await self._check(worker)
            if not worker.health.finding.error and FEATURE_CHAT in worker.transport.features:
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
            raise _not_found(worker_id)
        return worker

    def all(self) -> list[Worker]:
        """All workers, sorted by id."""
        return list(self._registry)

    async def drain(self, worker_id: str) -> Worker:
        """Stop new work for a worker."""
        async with self._changing():
            worker = self.get(worker_id)
            self._refuse_found(worker_id)
            record = await _stored(self._store.drain(worker_id))
            if record is None:
                # Another router removed it a moment ago.
                raise _not_found(worker_id)
            self._awaited.pop(worker_id, None)
            worker.version = record.version
            worker.drain()
        return worker

    async def remove(self, worker_id: str) -> None:
        """Forget a worker; its running requests finish."""
        async with self._changing():
            self._refuse_found(worker_id)
            if not await _stored(self._store.remove(worker_id)):
                raise _not_found(worker_id)
            self._awaited.pop(worker_id, None)
            self._roster.remove(worker_id)
        _log.info("worker_removed", worker_id=worker_id)

    async def catch_up(self, since: int) -> Picture:
        """Take up what is stored now, whoever changed it; `since`: the version that was taken up last, -1 to compare all.
        StoreError."""
        async with self._change:
            picture = await self._store.load(since)
            valid = self._valid(picture.changed)
            invalid = {record.worker_id for record in picture.changed} - valid.keys()
            for worker in self.all():
                is_gone = worker.worker_id not in picture.worker_ids or worker.worker_id in invalid
                if is_gone and not worker.found_by:
                    self._awaited.pop(worker.worker_id, None)
                    self._roster.remove(worker.worker_id)
                    _log.info("worker_removed_elsewhere", worker_id=worker.worker_id)
            for record, registration in valid.values():
                self._take(record, registration)
            return picture

    def _take(self, record: Record, registration: Registration) -> None:
        worker = self._registry.get(record.worker_id)
        if worker is not None and worker.found_by:
            _log.error("worker_id_taken", worker_id=record.worker_id, by=worker.found_by)
            return
        if worker is None:
            _log.info("worker_registered_elsewhere", worker_id=record.worker_id)
            self._put_unchecked(record, registration)
            return
        is_same = dict(worker.registration.document) == dict(record.document)
        if is_same and (worker.version, worker.health.draining) == (record.version, record.draining):
            # Our own change, or one that is known.
            self._awaited.pop(record.worker_id, None)
        elif is_same and record.draining:
            self._awaited.pop(record.worker_id, None)
            worker.version = record.version
            worker.drain()
        elif self._awaited.get(record.worker_id) != record.version:
            self._awaited[record.worker_id] = record.version
            self._roster.tasks.spawn(self._replace(record, registration), f"replace-{record.worker_id}")

    async def _replace(self, record: Record, registration: Registration) -> None:
        """As `register` does it: the old one serves until the new one was checked."""
        worker = self._roster.make(registration, record.registered_at_s, draining=record.draining)
        try:
            await self._check(worker)
            async with self._change:
                # Unless it was removed or replaced again meanwhile.
                if self._awaited.get(record.worker_id) == record.version:
                    del self._awaited[record.worker_id]
                    self._put(worker, record)
        finally:
            if self._registry.get(worker.worker_id) is not worker:
                await worker.transport.close()

    async def freeze(self) -> None:
        """Change nothing that is stored until `thaw`; changes that are asked for wait. A successor is reading. Where routers
        share, it reads what we write meanwhile, too."""
        if not self._shared:
            await self._change.acquire()
            self._frozen = True

    def thaw(self) -> None:
        """The successor did not come to be."""
        if self._frozen:
            self._frozen = False
            self._change.release()

    def supersede(self) -> None:
        """The stored registrations are the successor's from now on; what waited or comes later is turned away."""
        self._superseded = True
        self.thaw()

    async def close(self) -> None:
        """Let go of the store."""
        await self._store.close()

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        async with self._change:
            if self._superseded:
                raise TurnedAway("this router has a successor; ask again")
            self._refuse_while_away()
            yield

    def _refuse_found(self, worker_id: str) -> None:
        worker = self._registry.get(worker_id)
        if worker is not None and worker.found_by:
            raise InvalidArgument(
                f"{worker_id} was found by {worker.found_by}: take it out there, or that out of the settings",
                field="worker_id",
            )

    def _refuse_while_away(self) -> None:
        if not self._store.is_reachable:
            raise Unavailable(
                "the shared registry cannot be reached: no worker can be registered, drained or removed; ask again later"
            )

    async def _check(self, worker: Worker) -> None:
        finding, worker.last_probe = await self._roster.prober.check(worker)
        worker.health.on_check(finding)

    def _put(self, worker: Worker, record: Record) -> None:
        worker.registered_at_s, worker.version = record.registered_at_s, record.version
        self._awaited.pop(record.worker_id, None)
        self._roster.put(worker)

    def _put_unchecked(self, record: Record, registration: Registration) -> None:
        worker = self._roster.make(registration, record.registered_at_s, draining=record.draining)
        self._put(worker, record)

    def _valid(self, records: Sequence[Record]) -> dict[str, tuple[Record, Registration]]:
        """Those that are valid here, by id. The others stay in the store as they are, and are shown nowhere."""
        valid: dict[str, tuple[Record, Registration]] = {}
        for record in records:
            try:
                valid[record.worker_id] = record, registrations.read(record.document, self._roster.networks)
            except InvalidRegistration as error:
                _log.error("stored_registration_invalid", worker_id=record.worker_id[:128], why=str(error))
        return valid


def _not_found(worker_id: str) -> NotFound:
    return NotFound(f"no worker {worker_id[:MAX_SHOWN]!r} is registered", field="worker_id")


async def _stored(change: Awaitable[_Stored]) -> _Stored:
    try:
        return await change
    except StoreError as error:
        raise Unavailable(f"the registrations cannot be stored now; ask again later: {error}") from error
