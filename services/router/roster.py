"""Workers made, put into the registry, looked at and retired. Whoever adds workers or takes them out (the registrar, the
finder) uses it.

A replaced or removed worker's transport closes after its last answer.
"""

import asyncio
from collections.abc import Callable

from services.common.settings import RouterLimits
from services.common.tasks import TaskSet
from services.router.breaker import Breaker
from services.router.fleet import FleetView
from services.router.health import Health, Thresholds
from services.router.networks import EVERYWHERE, Networks
from services.router.places import Places
from services.router.probe import Prober
from services.router.registration import Registration
from services.router.registry import Registry
from services.router.transport import factory
from services.router.worker import Load, Worker


class Roster:
    """The workers of one router."""

    def __init__(
        self,
        registry: Registry,
        fleet: FleetView,
        places: Places,
        prober: Prober,
        limits: RouterLimits,
        networks: Networks = EVERYWHERE,
    ) -> None:
        self.registry = registry
        self.prober = prober
        self.networks = networks
        self._fleet = fleet
        self._places = places
        self._limits = limits
        # What belongs to workers and ends with the router.
        self.tasks = TaskSet()
        # Where routers share: how many of a worker's places are this router's, and who is told of changes that others can see.
        self.room: Callable[[Worker], int | None] = lambda _: None
        self.noted: Callable[[Worker], None] = lambda _: None
        # Workers with an open circuit -> the end of its rest.
        self._resting: dict[Worker, asyncio.TimerHandle] = {}
        self._closed = False

    def make(self, registration: Registration, registered_at_s: float, *, draining: bool = False) -> Worker:
        """A worker that is not in the registry yet; its transport is to be closed if it never is."""
        limits = self._limits
        return Worker(
            registration,
            factory.make(
                registration.endpoint,
                registration.config,
                registration.supported_models,
                registration.runtime,
                limits,
                self.networks,
            ),
            Health(
                Thresholds(limits.probes_to_go_down, limits.probes_to_come_back),
                draining,
                checks_read_usage=registration.config.check == "token",
            ),
            Breaker(limits.failures_to_open_circuit, limits.circuit_open_s),
            Load(),
            registered_at_s,
            self._changed,
        )

    def put(self, worker: Worker) -> None:
        """Have it serve, in place of the one that had its id. From now on it is looked at."""
        worker.load = self.registry.load_of(worker.worker_id)
        worker.room = self.room(worker)
        old = self.registry.put(worker)
        if old is not None:
            self._retire(old)
        self.tasks.spawn(self.prober.watch(worker), f"probe-{worker.worker_id}")
        self._fleet.changed(worker.worker_id, False)
        self._places.offer(worker)

    def remove(self, worker_id: str) -> None:
        """Forget a worker, if it is there; its running requests finish."""
        worker = self.registry.remove(worker_id)
        if worker is not None:
            self._retire(worker)
            self._fleet.changed(worker.worker_id, False)

    def share_anew(self) -> None:
        """How many places are this router's may have changed."""
        for worker in self.registry:
            before = worker.room
            worker.share(self.room(worker))
            if worker.room is not None and before is not None and worker.room > before:
                self._places.offer(worker)

    async def close(self) -> None:
        """Stop looking at workers and close their connections."""
        self._closed = True
        for timer in self._resting.values():
            timer.cancel()
        self._resting.clear()
        await self.tasks.cancel()
        for worker in self.registry:
            await worker.transport.close()

    def _changed(self, worker: Worker, load_only: bool) -> None:
        self._fleet.changed(worker.worker_id, load_only)
        self._places.offer(worker)
        if not load_only:
            self._wait_for_rest(worker)
            self.noted(worker)

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

    def _retire(self, worker: Worker) -> None:
        self.tasks.spawn(_close_when_idle(worker), f"retire-{worker.worker_id}")


async def _close_when_idle(worker: Worker) -> None:
    try:
        await worker.idle.wait()
    finally:
        await worker.transport.close()
