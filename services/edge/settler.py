"""Closes holds: settlements in the contract's order, and releases. The inference path imports it.

A settlement is appended to the outbox before it is first sent. `settle` returns when billing has answered or, after
`settle_wait_s` without an answer, when the outbox is on disk; from then on `delivery.py` repeats it until billing answers.
Once a settlement was sent the charge stands: no release follows it. Where the disk takes nothing, billing's answer alone can
end a request well; without it the client is told that the charge is not known, and the settlement is repeated from memory.
"""

import asyncio
import contextlib
from dataclasses import dataclass

import grpc
import structlog
from speedinfer.billing.v1.reservation_pb2 import ReleaseItem, ReleaseStatus, SettleResult, SettleStatus

from services.common import money
from services.common.backoff import Backoff
from services.common.tasks import TaskSet
from services.edge.billing_client import BillingClient, BillingUnavailable
from services.edge.holds import Holds
from services.edge.metrics import Metrics
from services.edge.openai_errors import CHARGE_UNKNOWN, SETTLEMENT_REFUSED, Problem
from services.edge.outbox import Outbox
from services.edge.settlement import Settlement

_log = structlog.get_logger(__name__)
_BUSY_PAUSE_S = 0.02
_LONGEST_BUSY_PAUSE_S = 0.2
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
# A hold that cannot be given back for this long has lapsed by itself.
_RELEASE_FOR_S = 60.0
_CHARGED = (SettleStatus.SETTLE_STATUS_SETTLED, SettleStatus.SETTLE_STATUS_LATE)
# Not an answer: to be sent again.
PUT_OFF = (SettleStatus.SETTLE_STATUS_BUSY, SettleStatus.SETTLE_STATUS_UNSPECIFIED)


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
        # Settlements whose first sending is under way; the delivery leaves them alone.
        self._first: set[str] = set()
        # Set when there is something to deliver.
        self.wake = asyncio.Event()

    def accepts_work(self) -> bool:
        """Whether there is room for another settlement; if not, a refusal is counted."""
        why = self._outbox.refusal()
        if why is not None:
            self._metrics.outbox_refusals.labels(why).inc()
        return why is None

    def is_sending(self, reservation_id: str) -> bool:
        """Whether a settlement is being sent for the first time."""
        return reservation_id in self._first

    async def settle(self, entry: Settlement) -> Receipt:
        """Charge a request; see the module for when this returns."""
        self._first.add(entry.reservation_id)
        try:
            # What the disk does not take is in memory, and may be sent all the same.
            with contextlib.suppress(OSError):
                self._outbox.append(entry)
            result = await self._send(entry)
            if result is not None:
                return await self.answered(entry, result)
            return await self._journal(entry)
        finally:
            self._first.discard(entry.reservation_id)
            if entry.reservation_id in self._outbox or not self._outbox.sound:
                self.wake.set()

    async def answered(self, entry: Settlement, result: SettleResult) -> Receipt:
        """Take in an answer that is final. What is refused stays in the outbox until it is kept for a person."""
        self._holds.drop(entry.reservation_id)
        word = SettleStatus.Name(result.status).removeprefix("SETTLE_STATUS_").lower()
        self._metrics.settlements.labels(word).inc()
        if result.status in _CHARGED:
            self._outbox.answered(entry.reservation_id)
            return Receipt(charge_nanos=money.from_money(result.reservation.charge))
        _log.error("settlement_refused", reservation_id=entry.reservation_id, status=word, field=result.field)
        await self._outbox.quarantined(entry, word)
        return Receipt(problem=SETTLEMENT_REFUSED)

    async def release(self, item: ReleaseItem, wait_s: float) -> None:
        """Give a hold back; returns when it is done, or after `wait_s` while it goes on in the background."""
        self._holds.drop(item.reservation_id)
        self._metrics.releases.labels(item.cause).inc()
        task = self._tasks.spawn(self._release(item), "release")
        if wait_s > 0:
            await asyncio.wait([task], timeout=wait_s)

    async def _send(self, entry: Settlement) -> SettleResult | None:
        """Billing's answer, or None if there was none in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settle_wait_s
        backoff = Backoff(_BUSY_PAUSE_S, _LONGEST_BUSY_PAUSE_S)
        while (left_s := deadline - loop.time()) > 0:
            try:
                result = await self._billing.settle(entry.item(), left_s)
            except (BillingUnavailable, grpc.aio.AioRpcError) as error:
                _log.warning("settlement_unanswered", reservation_id=entry.reservation_id, error=type(error).__name__)
                return None
            if result.status not in PUT_OFF:
                return result
            await asyncio.sleep(min(backoff.next_s(), max(deadline - loop.time(), 0)))
        return None

    async def _journal(self, entry: Settlement) -> Receipt:
        try:
            await self._outbox.sync(entry.reservation_id)
        except OSError:
            _log.error("settlement_not_on_disk", reservation_id=entry.reservation_id)
            return Receipt(problem=CHARGE_UNKNOWN)
        self._metrics.journaled.inc()
        return Receipt()

    async def _release(self, item: ReleaseItem) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _RELEASE_FOR_S
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            try:
                result = await self._billing.release(item)
                if result.status != ReleaseStatus.RELEASE_STATUS_BUSY:
                    if result.status == ReleaseStatus.RELEASE_STATUS_CONFLICT:
                        _log.error("release_of_a_charge", reservation_id=item.reservation_id)
                    return
            except (BillingUnavailable, grpc.aio.AioRpcError):
                pass
            pause_s = backoff.next_s()
            if loop.time() + pause_s >= deadline:
                _log.warning("release_given_up", reservation_id=item.reservation_id)
                return
            await asyncio.sleep(pause_s)
