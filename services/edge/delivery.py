"""Repeats settlements until billing answers, mends the outbox, and adopts what dead edges of this machine left. `app.py`
runs it.

One batch is on its way at a time, so that however much was left behind, billing's queue has room for those who are waiting
for it now. Nothing that happens here ends it: it is the only one that delivers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import grpc
import structlog

from services.common.backoff import Backoff
from services.edge.billing_client import BillingClient, BillingUnavailable
from services.edge.metrics import Metrics
from services.edge.outbox import Outbox
from services.edge.resend_order import ResendOrder
from services.edge.settlement import Settlement
from services.edge.settler import PUT_OFF, Settler

_log = structlog.get_logger(__name__)
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_MAX_ITEMS = 256
# Adopting what another edge of this machine left does not wait for the next start.
LOOK_EVERY_S = 30.0


class Delivery:
    """The background of the settler."""

    def __init__(
        self, billing: BillingClient, outbox: Outbox, settler: Settler, metrics: Metrics, timeout_s: float
    ) -> None:
        self._billing = billing
        self._outbox = outbox
        self._settler = settler
        self._metrics = metrics
        self._timeout_s = timeout_s
        self._order = ResendOrder(_MAX_ITEMS)

    async def run(self) -> None:
        """Runs until it is cancelled."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        next_look_s = loop.time() + LOOK_EVERY_S
        while True:
            self._settler.wake.clear()
            # By the clock and not after a silence: an edge that is never idle adopts, too.
            if looks := loop.time() >= next_look_s:
                next_look_s = loop.time() + LOOK_EVERY_S
            done = await self._turn(looks)
            if done:
                backoff.reset()
            if not done or self._has_work():
                await asyncio.sleep(backoff.next_s())
                continue
            try:
                async with asyncio.timeout_at(next_look_s):
                    await self._settler.wake.wait()
            except TimeoutError:
                pass

    async def deliver_once(self) -> bool:
        """Send what waits, in batches; False if some of it must be sent again."""
        while batch := self._order.batch(self._waiting()):
            self._metrics.outbox_replays.inc(len(batch))
            try:
                results = await self._billing.settle_again([entry.item() for entry in batch], self._timeout_s)
            except (BillingUnavailable, grpc.aio.AioRpcError) as error:
                self._order.failed(batch)
                _log.warning("settlements_wait", count=len(self._outbox), error=type(error).__name__)
                return False
            put_off = []
            for entry, result in zip(batch, results, strict=True):
                final = result.status not in PUT_OFF and entry.reservation_id in self._outbox
                if final:
                    await self._settler.answered(entry, result)
                # Put off, or refused and there was no room to keep it.
                if entry.reservation_id in self._outbox:
                    put_off.append(entry)
            self._order.answered(put_off)
        self._order.begin()
        return not self._has_work()

    async def _turn(self, looks: bool) -> bool:
        """Each step by itself: a disk that takes nothing does not stop what billing could take."""
        delivered = await self._guarded(self.deliver_once)
        looked = await self._guarded(self._look) if looks else True
        return await self._guarded(self._mend) and looked and delivered

    async def _guarded(self, step: Callable[[], Awaitable[bool]]) -> bool:
        try:
            return await step()
        except OSError as error:
            _log.warning("outbox_not_mended", error=error.strerror or str(error) or type(error).__name__)
        except Exception as error:
            _log.exception("delivery_failed", error=type(error).__name__)
        return False

    async def _look(self) -> bool:
        self._outbox.look()
        for _ in self._outbox.adopt():
            # Reading one file takes the loop's time; others have their turn before the next.
            await asyncio.sleep(0)
        return True

    async def _mend(self) -> bool:
        await self._outbox.mend()
        return True

    def _waiting(self) -> Iterator[Settlement]:
        return (entry for entry in self._outbox.pending() if not self._settler.is_sending(entry.reservation_id))

    def _has_work(self) -> bool:
        return not self._outbox.sound or next(self._waiting(), None) is not None
