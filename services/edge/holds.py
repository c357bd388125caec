"""Keeps the holds of open requests from lapsing: all of them in batched calls, four times a lease; what a call did not renew is
tried again in between, after pauses that grow.

A hold that billing says is closed is forgotten: the request goes on, and its settlement will be a late charge.
"""

import asyncio
from collections.abc import Sequence

import grpc
import structlog
from speedinfer.billing.v1.reservation_pb2 import RenewStatus

from services.common.backoff import Backoff
from services.edge.billing_client import BillingClient, BillingUnavailable

_log = structlog.get_logger(__name__)
_RENEWALS_PER_LEASE = 4
_SHORTEST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 15.0
# Billing takes at most this many items a call.
_MAX_ITEMS = 1000
_GONE = (RenewStatus.RENEW_STATUS_CLOSED, RenewStatus.RENEW_STATUS_UNKNOWN)


class Holds:
    """The holds of this edge that are open."""

    def __init__(self, billing: BillingClient) -> None:
        self._billing = billing
        self._lease_s: dict[str, float] = {}
        self._shorter = asyncio.Event()
        self._pause_s = _LONGEST_PAUSE_S

    def __len__(self) -> int:
        return len(self._lease_s)

    def keep(self, reservation_id: str, lease_ms: int) -> None:
        """Renew this hold from now on."""
        self._lease_s[reservation_id] = lease_ms / 1000
        if lease_ms / 1000 / _RENEWALS_PER_LEASE < self._pause_s:
            self._shorter.set()

    def drop(self, reservation_id: str) -> None:
        """Renew it no more."""
        self._lease_s.pop(reservation_id, None)

    async def renew(self) -> None:
        """Runs until it is cancelled."""
        loop = asyncio.get_running_loop()
        left: list[str] = []
        while True:
            shortest = min(self._lease_s.values(), default=_LONGEST_PAUSE_S * _RENEWALS_PER_LEASE)
            self._pause_s = min(max(shortest / _RENEWALS_PER_LEASE, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)
            self._shorter.clear()
            due_s = loop.time() + self._pause_s
            # A pause is a quarter of a lease; what was not renewed is not to lose as much again.
            backoff = Backoff(self._pause_s / 16, self._pause_s / 2)
            while (rest_s := due_s - loop.time()) > 0:
                if await self._is_shorter_within(min(backoff.next_s(), rest_s) if left else rest_s):
                    break
                if left and loop.time() < due_s:
                    left = await self.renew_once(left)
            else:
                left = await self.renew_once(list(self._lease_s))

    async def renew_once(self, reservation_ids: Sequence[str]) -> list[str]:
        """Renew those that are still open; answers those of them that were not renewed, and may be tried again. A batch that
        fails says nothing of the next: billing may have been full for a moment, or one item may be at fault."""
        left: list[str] = []
        why = ""
        for batch in _batches([each for each in reservation_ids if each in self._lease_s]):
            try:
                results = await self._billing.renew(batch)
            except (BillingUnavailable, grpc.aio.AioRpcError) as error:
                # Billing that was away gives every open hold a whole lease when it is back.
                why = error.code().name if isinstance(error, grpc.aio.AioRpcError) else str(error)
                left += batch
                continue
            for result in results:
                if result.status in _GONE:
                    self.drop(result.reservation_id)
        if left:
            _log.warning("holds_not_renewed", count=len(left), error=why)
        return left

    async def _is_shorter_within(self, wait_s: float) -> bool:
        """Wait; answers at once where a hold comes that is to be renewed sooner."""
        try:
            async with asyncio.timeout(wait_s):
                await self._shorter.wait()
        except TimeoutError:
            return False
        return True


def _batches(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[start : start + _MAX_ITEMS] for start in range(0, len(ids), _MAX_ITEMS)]
