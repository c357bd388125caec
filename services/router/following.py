"""Keeping up with the other routers of a shared registry: who is there, what they changed, what they found. The app starts it.

Invariants: what the others changed is taken up within a second, notified or not; this router's lease is renewed every second; a
registry that cannot be reached is said at once, everything stays as it is, and all is read anew when it is back.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from services.common.tasks import TaskSet
from services.router.hearsay import Hearsay
from services.router.metrics import Metrics
from services.router.registrar import Registrar
from services.router.roster import Roster
from services.router.share import Shares
from services.router.store.port import Member, SharedStore, StoreError
from services.router.worker import Worker

_log = structlog.get_logger(__name__)

BEAT_S = 1.0
# A router that was not heard of for so long is not counted any more.
LEASE_S = 5.0
RETRY_S = 0.5
# What comes in a burst is looked at together.
_GATHER_S = 0.02


class Following:
    """One router's part in it."""

    def __init__(
        self,
        router_id: str,
        store: SharedStore,
        registrar: Registrar,
        roster: Roster,
        metrics: Metrics,
        reachable: Callable[[bool], None],
        waiting: Callable[[], int],
    ) -> None:
        """`reachable` is told whenever the registry can be reached again, or can no longer. `waiting`: requests that wait for a
        place of this router's."""
        self._router_id = router_id
        self._store = store
        self._registrar = registrar
        self._roster = roster
        self._metrics = metrics
        self._reachable = reachable
        self._waiting = waiting
        self._leaving = False
        self._shares = Shares(router_id)
        self._hearsay = Hearsay()
        self._members: Sequence[Member] = ()
        # The registry's version that was taken up; -1: read all.
        self._known = -1
        # What our row said last of whom we see and whether we stay.
        self._said: tuple[str, bool] | None = None
        self.connected = True
        # Set while all routers agree who shares.
        self._settled = asyncio.Event()
        self._tasks = TaskSet()
        roster.room = self._room
        roster.noted = self._note

    def start(self) -> None:
        """Begin; the store is open, and what it holds was restored."""
        self._metrics.registry_connected.set(1)
        self._tasks.spawn(self._run(), "follow-registry")

    async def settled(self, within_s: float) -> bool:
        """Wait until all routers know of this one, so that it has its share; False if that takes longer."""
        try:
            async with asyncio.timeout(within_s):
                await self._settled.wait()
        except TimeoutError:
            return False
        return True

    @property
    def routers(self) -> int:
        """How many routers share, this one among them."""
        return self._shares.routers

    def running(self, worker: Worker) -> int | None:
        """Requests of all routers that run on a worker that drains; None until all know that it does."""
        others = [member for member in self._members if member.router_id != self._router_id]
        if any(member.version < worker.version for member in others):
            return None
        return worker.in_flight + sum(member.draining.get(worker.worker_id, 0) for member in others)

    def leave(self) -> None:
        """Leave the workers' places to the others once nobody waits for one here; what runs goes on."""
        self._leaving = True
        self._store.stirred.set()

    async def close(self) -> None:
        """Be gone."""
        await self._tasks.cancel()
        with suppress(StoreError):
            await self._store.leave(self._router_id)

    async def _run(self) -> None:
        while True:
            try:
                if not self.connected:
                    await self._store.connect()
                    # Whatever was missed, and if the database came back from a backup.
                    self._known = -1
                    self._report(True, "")
                await self._follow()
            except StoreError as error:
                self._report(False, str(error))
            except Exception as error:
                # A mistake of ours, or a row that nobody of us wrote: this router serves on, and tries again.
                _log.exception("follow_failed", error=type(error).__name__)
                self._report(False, type(error).__name__)
            await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        while True:
            self._store.stirred.clear()
            if await self._look():
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._store.stirred.wait()
                    await asyncio.sleep(_GATHER_S)

    async def _look(self) -> bool:
        """Say what there is to say, and take up what others said. True if that changed what there is to say."""
        shares = self._shares
        if self._leaving and not shares.leaving and not self._waiting():
            shares.leave()
            self._roster.share_anew()
        me = self._me()
        look = await self._store.look(me, LEASE_S)
        news = shares.see(look.members)
        if look.members != self._members:
            self._members = look.members
            self._metrics.routers.set(shares.routers)
            self._roster.share_anew()
        (self._settled.set if shares.settled else self._settled.clear)()
        if self._said != (me.agreed, me.leaving):
            # The others wait for it.
            await self._store.stir()
            self._said = me.agreed, me.leaving
        for verdict in self._store.heard():
            worker = self._roster.registry.get(verdict.worker_id)
            if worker is not None:
                self._hearsay.hear(worker, verdict)
        if verdicts := self._hearsay.to_tell():
            await self._store.tell(self._router_id, verdicts)
        if look.version != self._known:
            picture = await self._registrar.catch_up(self._known if look.version > self._known else -1)
            self._known = picture.version
            self._hearsay.keep_only(picture.worker_ids)
            news = True
        return news

    def _me(self) -> Member:
        bounded: dict[str, tuple[int, int]] = {}
        draining: dict[str, int] = {}
        for worker in self._roster.registry:
            if not worker.in_flight:
                continue
            if worker.places is not None:
                bounded[worker.worker_id] = worker.in_flight, worker.places
            if worker.health.draining:
                draining[worker.worker_id] = worker.in_flight
        shares = self._shares
        excess = shares.excess(bounded)
        return Member(self._router_id, self._known, shares.agreed, shares.leaving, excess, draining)

    def _room(self, worker: Worker) -> int | None:
        return None if worker.places is None else self._shares.room(worker.worker_id, worker.places)

    def _note(self, worker: Worker) -> None:
        if self.connected and self._hearsay.note(worker):
            self._store.stirred.set()

    def _report(self, connected: bool, why: str) -> None:
        if connected == self.connected:
            return
        self.connected = connected
        self._metrics.registry_connected.set(int(connected))
        if connected:
            _log.info("registry_reached_again")
        else:
            _log.error("registry_cut_off", why=why)
        self._reachable(connected)
