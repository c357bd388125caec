"""One registered worker: what is known of it and what runs on it. Owned by the registry; no I/O of its own.

Invariants: `in_flight` is raised once when a request is given to the worker and lowered once when its answer is over, however
it ends; it belongs to the worker's id, so that a replaced registration goes on counting what runs on the old one.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from speedinfer.router.v1.fleet_pb2 import Feature

from services.router.breaker import Breaker, Circuit, Event
from services.router.health import Health
from services.router.registration import Registration
from services.router.transport.port import Transport


class Load:
    """How many requests run on a worker's id."""

    def __init__(self) -> None:
        self.in_flight = 0
        self._change = asyncio.Event()

    def add(self, number: int) -> None:
        """One more, or one less."""
        self.in_flight += number
        assert self.in_flight >= 0, "a slot was given back twice"
        change, self._change = self._change, asyncio.Event()
        change.set()

    async def changed(self) -> None:
        """Wait for the next change."""
        await self._change.wait()


@dataclass(frozen=True, slots=True)
class LastProbe:
    """When the last look ended (epoch seconds) and how long it took."""

    at_s: float
    latency_ms: float


class Slot:
    """One request's place on a worker. Given back exactly once."""

    def __init__(self, worker: "Worker") -> None:
        self.worker = worker
        self._released = False

    def record(self, event: Event, now: float) -> None:
        """What its request showed of the worker."""
        self.worker.record(event, now, self)

    def release(self) -> None:
        """Give the place back; a second time does nothing."""
        if not self._released:
            self._released = True
            self.worker.given_back()


class Worker:
    """A registration and its life. `changed(worker, load_only)` is told of everything that others can see."""

    def __init__(
        self,
        registration: Registration,
        transport: Transport,
        health: Health,
        breaker: Breaker,
        load: Load,
        registered_at_s: float,
        changed: Callable[["Worker", bool], None],
    ) -> None:
        self.registration = registration
        self.transport = transport
        self.health = health
        self.load = load
        self.registered_at_s = registered_at_s
        self.last_probe: LastProbe | None = None
        self._breaker = breaker
        self._tell = changed
        # Where it is ranked by its load; see `tell_ranks`.
        self._rank: Callable[[Worker], None] | None = None
        self._running = 0
        # The registry's version that its registration came with, where routers share one; else 0.
        self.version = 0
        # What it was found by, where it was not registered: `the name workers.internal`.
        self.found_by = ""
        # How many of its places are this router's, where routers share them.
        self.room: int | None = None
        # Set when somebody wants the worker to be looked at before its time.
        self.attention = asyncio.Event()
        # Set once it was looked at for the first time.
        self.seen = asyncio.Event()
        # Replaced or removed: gets nothing new.
        self.retired = False
        # A count of its own was short of what was reported.
        self._miscounts = False
        # Set while nothing runs on this registration.
        self.idle = asyncio.Event()
        self.idle.set()

    @property
    def worker_id(self) -> str:
        """The operator's name for it."""
        return self.registration.worker_id

    @property
    def in_flight(self) -> int:
        """Requests that run on the worker's id."""
        return self.load.in_flight

    @property
    def max_concurrency(self) -> int | None:
        """The bound on this router's `in_flight`."""
        return self.registration.config.max_concurrency if self.room is None else self.room

    @property
    def places(self) -> int | None:
        """How many requests it takes at once, whichever router they come by."""
        return self.registration.config.max_concurrency

    @property
    def weight(self) -> float:
        """Its share among workers of the same model."""
        return self.registration.config.weight

    @property
    def features(self) -> frozenset[Feature.ValueType]:
        """What requests may ask of it."""
        return self.transport.features

    @property
    def counts_tokens(self) -> bool:
        """It can be asked how many tokens a prompt has, and has not been wrong so far."""
        return self.transport.counts_tokens and not self._miscounts

    @property
    def is_known(self) -> bool:
        """A check has shown what it can do."""
        return self.health.checked

    @property
    def is_serving(self) -> bool:
        """Healthy, and not draining."""
        return self.health.is_up and not self.health.draining and not self.retired

    def admits(self, now: float) -> bool:
        """Whether its circuit lets a request through."""
        return self._breaker.admits(now)

    @property
    def prefers_others(self) -> bool:
        """It has only just come back, and has enough for now."""
        return self._breaker.prefers_others(self.in_flight)

    @property
    def is_settled(self) -> bool:
        """Nothing but its load speaks for or against it, as long as it serves."""
        return self._breaker.is_settled

    def tell_ranks(self, rank: "Callable[[Worker], None]") -> None:
        """Call this after every change, before anybody else is told; the registry does, once it has the worker."""
        self._rank = rank

    def share(self, room: int | None) -> None:
        """How many of its places are this router's from now on."""
        self.room = room
        self._move()

    def has_room(self, now: float) -> bool:
        """Whether it may get one more request at once."""
        below = self.max_concurrency is None or self.in_flight < self.max_concurrency
        return below and self.is_serving and self.admits(now)

    def circuit(self, now: float) -> Circuit:
        """The circuit's state."""
        return self._breaker.state(now)

    def rests_until(self, now: float) -> float | None:
        """When its open circuit lets somebody try again; None if it is not open."""
        return self._breaker.rests_until(now)

    def take(self, now: float) -> Slot:
        """A place for one request."""
        slot = Slot(self)
        self._breaker.record(Event.ADMITTED, now, slot)
        self.load.add(1)
        self._running += 1
        self.idle.clear()
        self._changed(True)
        return slot

    def given_back(self) -> None:
        """A slot was released; only Slot calls this."""
        self.load.add(-1)
        self._running -= 1
        if self._running == 0:
            self.idle.set()
        self._changed(True)

    def record(self, event: Event, now: float, slot: Slot) -> None:
        """What the request in that place showed of the worker; only Slot calls this."""
        before, was_settled = self._breaker.state(now), self._breaker.is_settled
        self._breaker.record(event, now, slot)
        if self._breaker.state(now) is not before:
            self._changed(False)
        elif self._breaker.is_settled is not was_settled:
            self._move()

    def record_usage(self, reported: bool) -> None:
        """A complete answer came, with or without usage."""
        if self.health.on_usage(reported):
            self._changed(False)

    def told_without_usage(self) -> None:
        """Another router found that it reports none."""
        if self.health.on_lost_usage():
            self._changed(False)

    def miscounted(self) -> None:
        """It is asked no longer, until it is registered anew: holds by its counts would not cover what they are for."""
        if not self._miscounts:
            self._miscounts = True
            self._changed(False)

    def looked_at(self, probe: LastProbe, *, status_changed: bool) -> None:
        """A probe or check ended and was noted in `health`."""
        self.last_probe = probe
        if status_changed and self.health.is_up and self.seen.is_set():
            self._breaker.ease_in()
        self.seen.set()
        self._changed(not status_changed)

    def drain(self) -> None:
        """Take nothing new."""
        self.health.draining = True
        self._changed(False)

    def _changed(self, load_only: bool) -> None:
        self._move()
        self._tell(self, load_only)

    def _move(self) -> None:
        if self._rank is not None:
            self._rank(self)
