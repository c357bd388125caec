"""Closes holds: settlements in the contract's order, and releases. The inference path imports it.

A settlement is appended to the outbox before it is first sent. `settle` returns when billing has answered or, after
`settle_wait_s` without an answer, when the outbox is on disk; from then on `deliver` repeats it until billing answers. Once
a settlement was sent the charge stands: no release follows it.
"""

import asyncio
import itertools
from dataclasses import dataclass

import grpc
import structlog
from speedinfer.billing.v1.reservation_pb2 import ReleaseItem, ReleaseStatus, SettleResult, SettleStatus

from services.common import money
from services.common.tasks import TaskSet
from services.edge.billing_client import BillingClient, BillingUnavailable
from services.edge.holds import Holds
from services.edge.metrics import Metrics
from services.edge.openai_errors import BILLING_UNAVAILABLE, SETTLEMENT_REFUSED, Problem
from services.edge.outbox import Outbox
from services.edge.settlement import Settlement

_log = structlog.get_logger(__name__)
_BUSY_PAUSE_S = 0.02
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_MAX_ITEMS = 256
# Adopting what another edge of this machine left does not wait for the next start.
_ADOPT_EVERY_S = 30.0
# A hold that cannot be given back for this long has lapsed by itself.
_RELEASE_FOR_S = 60.0
_CHARGED = (SettleStatus.SETTLE_STATUS_SETTLED, SettleStatus.SETTLE_STATUS_LATE)
_LATER = (SettleStatus.SETTLE_STATUS_BUSY, SettleStatus.SETTLE_STATUS_UNSPECIFIED)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a settlement came to. Neither charge nor problem: the outbox has it, billing has not answered yet."""

    charge_nanos: int | None = None
    problem: Problem | None = None


class Settler:
    """Settles and releases."""

    def __init__(
        self,
        billing: BillingClient,
        outbox: Outbox,
        holds: Holds,
        metrics: Metrics,
        tasks: TaskSet,
        settle_wait_s: float,
    ) -> None:
        self._billing = billing
        self._outbox = outbox
        self._holds = holds
        self._metrics = metrics
        self._tasks = tasks
        self._settle_wait_s = settle_wait_s
        # Settlements whose first sending is under way; `deliver` leaves them alone.
        self._first: set[str] = set()
        self._wake = asyncio.Event()

    def accepts_work(self) -> bool:
        """Whether there is room for another settlement."""
        return self._outbox.has_room()

    async def settle(self, entry: Settlement) -> Receipt:
        """Charge a request; see the module for when this returns."""
        self._first.add(entry.reservation_id)
        try:
            try:
                self._outbox.append(entry)
            except OSError as error:
                self._metrics.outbox_failures.inc()
                _log.error("outbox_append_failed", reservation_id=entry.reservation_id, error=error.strerror)
            self._show_depth()
            result = await self._send(entry)
            if result is not None:
                return self._answered(entry, result)
            return await self._journal(entry)
        finally:
            self._first.discard(entry.reservation_id)
            self._wake.set()

    async def release(self, item: ReleaseItem, wait_s: float) -> None:
        """Give a hold back; returns when it is done, or after `wait_s` while it goes on in the background."""
        self._holds.drop(item.reservation_id)
        self._metrics.releases.labels(item.cause).inc()
        task = self._tasks.spawn(self._release(item), "release")
        if wait_s > 0:
            await asyncio.wait([task], timeout=wait_s)

    async def deliver(self) -> None:
        """Repeat what billing has not answered; runs until it is cancelled."""
        pause_s = _FIRST_PAUSE_S
        while True:
            self._wake.clear()
            answered = await self.deliver_once()
            pause_s = _FIRST_PAUSE_S if answered else min(pause_s * 2, _LONGEST_PAUSE_S)
            if self._waiting():
                await asyncio.sleep(pause_s)
                continue
            try:
                async with asyncio.timeout(_ADOPT_EVERY_S):
                    await self._wake.wait()
            except TimeoutError:
                self._outbox.adopt()

    async def deliver_once(self) -> bool:
        """Send what waits, in batches; False if billing did not answer."""
        while batch := self._waiting():
            try:
                results = await self._billing.settle([entry.item() for entry in batch], self._settle_wait_s * 5)
            except (BillingUnavailable, grpc.aio.AioRpcError) as error:
                _log.warning("settlements_wait", count=len(self._outbox), error=type(error).__name__)
                return False
            final = [pair for pair in zip(batch, results, strict=True) if pair[1].status not in _LATER]
            for entry, result in final:
                self._answered(entry, result)
            if len(final) < len(batch):
                return False
        return True

    def _waiting(self) -> list[Settlement]:
        waiting = (entry for entry in self._outbox.pending() if entry.reservation_id not in self._first)
        return list(itertools.islice(waiting, _MAX_ITEMS))

    async def _send(self, entry: Settlement) -> SettleResult | None:
        """Billing's answer, or None if there was none in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settle_wait_s
        while (left_s := deadline - loop.time()) > 0:
            try:
                result = (await self._billing.settle([entry.item()], left_s))[0]
            except (BillingUnavailable, grpc.aio.AioRpcError) as error:
                _log.warning("settlement_unanswered", reservation_id=entry.reservation_id, error=type(error).__name__)
                return None
            if result.status not in _LATER:
                return result
            await asyncio.sleep(_BUSY_PAUSE_S)
        return None

    async def _journal(self, entry: Settlement) -> Receipt:
        try:
            if entry.reservation_id not in self._outbox:
                raise OSError("the settlement is not in the outbox")
            await self._outbox.sync(entry.reservation_id)
        except OSError as error:
            self._metrics.outbox_failures.inc()
            _log.error("outbox_sync_failed", reservation_id=entry.reservation_id, error=error.strerror or str(error))
            return Receipt(problem=BILLING_UNAVAILABLE)
        self._metrics.journaled.inc()
        return Receipt()

    def _answered(self, entry: Settlement, result: SettleResult) -> Receipt:
        """Take in an answer that is final."""
        self._outbox.answered(entry.reservation_id)
        self._holds.drop(entry.reservation_id)
        self._show_depth()
        word = SettleStatus.Name(result.status).removeprefix("SETTLE_STATUS_").lower()
        self._metrics.settlements.labels(word).inc()
        if result.status in _CHARGED:
            return Receipt(charge_nanos=money.from_money(result.reservation.charge))
        self._metrics.quarantined.inc()
        _log.error("settlement_quarantined", reservation_id=entry.reservation_id, status=word, field=result.field)
        self._outbox.quarantine(entry, word)
        return Receipt(problem=SETTLEMENT_REFUSED)

    async def _release(self, item: ReleaseItem) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _RELEASE_FOR_S
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                result = await self._billing.release(item)
                if result.status != ReleaseStatus.RELEASE_STATUS_BUSY:
                    if result.status == ReleaseStatus.RELEASE_STATUS_CONFLICT:
                        _log.error("release_of_a_charge", reservation_id=item.reservation_id)
                    return
            except (BillingUnavailable, grpc.aio.AioRpcError):
                pass
            if loop.time() + pause_s >= deadline:
                _log.warning("release_given_up", reservation_id=item.reservation_id)
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _show_depth(self) -> None:
        self._metrics.outbox.set(len(self._outbox))
        self._metrics.outbox_bytes.set(self._outbox.size_bytes)
