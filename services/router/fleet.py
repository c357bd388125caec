"""What others may see of the workers: the picture that edges watch. The inference servicer and the registrar use it.

Never an address, a header or a secret. Every watcher gets whole pictures, and only the newest: one that is slow misses
intermediate ones, not the last.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from google.protobuf import struct_pb2
from speedinfer.router.v1 import fleet_pb2

from services.router.registry import Registry
from services.router.worker import Worker

LOAD_INTERVAL_S = 1.0


class FleetView:
    """The fleet as of now, and its changes."""

    def __init__(self, registry: Registry, router_id: str) -> None:
        self._registry = registry
        self.router_id = router_id
        self._version = 1
        self._picture: fleet_pb2.Fleet | None = None
        # Workers as they were shown last, without those that have changed since.
        self._shown: dict[str, fleet_pb2.Worker] = {}
        # Counts announcements, so that a watcher knows whether it has seen the last.
        self._announced = 1
        self._announcement = asyncio.Event()
        self._announced_at = 0.0
        self._later: asyncio.TimerHandle | None = None
        self._closed = False

    def changed(self, worker_id: str, load_only: bool) -> None:
        """Something that the picture shows of a worker has changed, or it has come or gone."""
        self._shown.pop(worker_id, None)
        self._version += 1
        self._picture = None
        if not load_only:
            self._announce()
        elif self._later is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._later = loop.call_at(max(loop.time(), self._announced_at + LOAD_INTERVAL_S), self._announce)

    def picture(self) -> fleet_pb2.Fleet:
        """The picture now; not to be changed."""
        if self._picture is None:
            self._picture = fleet_pb2.Fleet(
                router_id=self.router_id,
                version=self._version,
                models=self._models(),
                workers=[self._show(worker) for worker in self._registry],
            )
        return self._picture

    async def watch(self) -> AsyncIterator[fleet_pb2.Fleet]:
        """The picture now, and again after every announcement, until the view is closed."""
        seen = 0
        while not self._closed:
            if seen == self._announced:
                await self._announcement.wait()
                continue
            seen = self._announced
            yield self.picture()

    def close(self) -> None:
        """End all watches."""
        self._closed = True
        self._announce()

    def _announce(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self._announced += 1
        self._announced_at = asyncio.get_running_loop().time()
        announcement, self._announcement = self._announcement, asyncio.Event()
        announcement.set()

    def _show(self, worker: Worker) -> fleet_pb2.Worker:
        shown = self._shown.get(worker.worker_id)
        if shown is None:
            shown = self._shown[worker.worker_id] = public(worker)
        return shown

    def _models(self) -> Iterator[fleet_pb2.Model]:
        for name in self._registry.models():
            workers = self._registry.of_model(name)
            model = fleet_pb2.Model(name=name, worker_ids=sorted(worker.worker_id for worker in workers))
            model.created_at.FromMilliseconds(int(min(worker.registered_at_s for worker in workers) * 1000))
            yield model


def public(worker: Worker) -> fleet_pb2.Worker:
    """One worker as everybody may see it."""
    registration = worker.registration
    message = fleet_pb2.Worker(
        worker_id=worker.worker_id,
        worker_type=registration.worker_type,
        runtime=registration.runtime,
        transport=registration.config.transport,
        supported_models=registration.supported_models,
        status=worker.health.status,
        circuit=worker.circuit(time.monotonic()),
        in_flight=worker.in_flight,
        max_concurrency=worker.places or 0,
        metadata=to_struct(dict(registration.metadata)),
        features=sorted(worker.features),
        counts_tokens=worker.counts_tokens,
    )
    if worker.last_probe is not None:
        message.last_probe.at.FromMilliseconds(int(worker.last_probe.at_s * 1000))
        message.last_probe.latency_ms = worker.last_probe.latency_ms
    message.last_probe.error = worker.health.finding.error
    return message


def to_struct(value: dict[str, Any]) -> struct_pb2.Struct:
    """A JSON object as a Struct."""
    struct = struct_pb2.Struct()
    struct.update(value)
    return struct
