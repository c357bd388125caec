"""Places on workers that have a bound: granted at once where there is room, else waited for in turn. The servicer uses it.

Invariants: a place is a slot of its worker's load from its grant to its use or release, exactly once; whoever comes later is
never served before an earlier request of the same party that can be served; nothing polls: a worker that may have room is
offered to the queues of its models.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from services.common.errors import InvalidArgument
from services.common.settings import RouterLimits
from services.router import failure as failures
from services.router.breaker import Event
from services.router.fair_queue import FairQueue
from services.router.pick import Need, Picked, Why
from services.router.registry import Registry
from services.router.transport.port import WorkerFailure
from services.router.worker import Slot, Worker


@dataclass(frozen=True, slots=True)
class Place:
    """A slot on a worker, not yet used."""

    worker: Worker
    slot: Slot
    # Set when it is used or given back.
    over: asyncio.Event

    def give_back(self) -> None:
        """Nobody will use it."""
        self.over.set()
        # A half-open circuit waits for the outcome of the request that it let through.
        self.slot.record(Event.UNDECIDED, asyncio.get_running_loop().time())
        self.slot.release()


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a place is waited for: the queue's own bound, or the request's total deadline where that comes first."""

    wait_s: float
    is_total: bool

    @classmethod
    def of(cls, queue_wait_s: float, remaining_s: float) -> "Patience":
        """`remaining_s`: 0 if the request has no deadline."""
        is_total = 0 < remaining_s < queue_wait_s
        return cls(remaining_s if is_total else queue_wait_s, is_total)

    def end(self) -> WorkerFailure:
        """What it means that it is over."""
        return failures.timed_out("total", self.wait_s) if self.is_total else failures.waited_in_vain(self.wait_s)


class _Waiting:
    """One request that waits for a place."""

    __slots__ = ("granted", "needs")

    def __init__(self, needs: Sequence[Need]) -> None:
        self.needs = needs
        self.granted: asyncio.Future[Place] = asyncio.get_running_loop().create_future()


class Places:
    """All places and queues of one router."""

    def __init__(self, registry: Registry, chance: Random, limits: RouterLimits) -> None:
        self._registry = registry
        self._chance = chance
        self._limits = limits
        # Model -> who waits for it; only queues in which somebody waits.
        self._queues: dict[str, FairQueue[_Waiting]] = {}
        self._turn = 0
        # Request id -> the place that is kept for it.
        self._kept: dict[str, Place] = {}

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return sum(map(len, self._queues.values()))

    async def keep(self, request_id: str, model: str, needs: Sequence[Need], party: str, patience: Patience) -> Place:
        """A place for the request of that id, waited for with patience. WorkerFailure says why there is none.

        It is kept until `use` or `give_back`."""
        if request_id in self._kept:
            raise InvalidArgument("this request has a place already", field="context.request_id")
        place = await self._hold(model, needs, party, patience)
        if request_id in self._kept:
            # Asked for twice at once: the one that came first stays, or its slot would never be given back.
            place.give_back()
            raise InvalidArgument("this request has a place already", field="context.request_id")
        self._kept[request_id] = place
        return place

    def use(self, request_id: str) -> Place | None:
        """The place that was kept for a request, which is its own from now on."""
        place = self._kept.pop(request_id, None)
        if place is not None:
            place.over.set()
        return place

    def give_back(self, request_id: str) -> None:
        """Keep no place for this request any longer; nothing happens if there is none."""
        place = self._kept.pop(request_id, None)
        if place is not None:
            place.give_back()

    async def _hold(self, model: str, needs: Sequence[Need], party: str, patience: Patience) -> Place:
        now = asyncio.get_running_loop().time()
        picked = self._registry.pick(model, needs, (), now, self._chance)
        if isinstance(picked, Picked):
            return _place(picked.worker, now)
        if picked.why is not Why.OVERLOADED:
            raise failures.not_picked(picked, model)
        waiting = self._enter(model, needs, party)
        try:
            async with asyncio.timeout(patience.wait_s):
                # Shielded, so that a place that is granted while the wait is given up is not lost with it.
                return await asyncio.shield(waiting.granted)
        except TimeoutError:
            if waiting.granted.done():
                return waiting.granted.result()
            raise patience.end() from None
        except asyncio.CancelledError:
            if waiting.granted.done() and waiting.granted.exception() is None:
                waiting.granted.result().give_back()
            raise
        finally:
            self._leave(model, party, waiting)

    def refuse_all(self, failure: WorkerFailure) -> None:
        """Let nobody wait any longer."""
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            for waiting in queue:
                waiting.granted.set_exception(failure)

    def offer(self, worker: Worker) -> None:
        """The worker may have room: give it to those whose turn it is."""
        models = [model for model in worker.registration.supported_models if model in self._queues]
        now = asyncio.get_running_loop().time()
        while models and worker.has_room(now):
            # Models take turns as well, so that none of them has all of a worker that they share.
            self._turn += 1
            first = self._turn % len(models)
            if not any(self._grant(model, worker, now) for model in models[first:] + models[:first]):
                return
            models = [model for model in models if model in self._queues]

    def _grant(self, model: str, worker: Worker, now: float) -> bool:
        waiting = self._queues[model].next(lambda each: all(need.feature in worker.features for need in each.needs))
        if waiting is None:
            return False
        if not self._queues[model]:
            del self._queues[model]
        waiting.granted.set_result(_place(worker, now))
        return True

    def _enter(self, model: str, needs: Sequence[Need], party: str) -> _Waiting:
        waiting = _Waiting(needs)
        queue = self._queues.get(model) or FairQueue(self._limits.max_waiting_per_party)
        gone = queue.push(party, waiting, self._bound(model))
        if gone is waiting:
            raise failures.queue_full()
        self._queues[model] = queue
        if gone is not None:
            gone.granted.set_exception(failures.queue_full())
        return waiting

    def _bound(self, model: str) -> int:
        """How many may wait for a model: no more than its workers could take up in so many rounds, though for a moment a router
        may have no share of them."""
        places = sum(worker.places or 0 for worker in self._registry.of_model(model) if worker.is_serving)
        return min(self._limits.max_waiting, self._limits.max_waiting_per_place * places)

    def _leave(self, model: str, party: str, waiting: _Waiting) -> None:
        queue = self._queues.get(model)
        if queue is not None and queue.remove(party, waiting) and not queue:
            del self._queues[model]


def _place(worker: Worker, now: float) -> Place:
    return Place(worker, worker.take(now), asyncio.Event())
