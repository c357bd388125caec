"""Keeps the holds of open requests from lapsing: all of them in one batched call, four times a lease.

A hold that billing says is closed is forgotten: the request goes on, and its settlement will be a late charge.
"""

import asyncio

import grpc
import structlog
from speedinfer.billing.v1.reservation_pb2 import RenewStatus

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
        while True:
            shortest = min(self._lease_s.values(), default=_LONGEST_PAUSE_S * _RENEWALS_PER_LEASE)
            self._pause_s = min(max(shortest / _RENEWALS_PER_LEASE, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)
            self._shorter.clear()
            try:
                async with asyncio.timeout(self._pause_s):
                    await self._shorter.wait()
                continue
            except TimeoutError:
                pass
            await self.renew_once()

    async def renew_once(self) -> None:
        """Renew all that are open now."""
        for batch in _batches(list(self._lease_s)):
            try:
                results = await self._billing.renew(batch)
            except (BillingUnavailable, grpc.aio.AioRpcError):
                # Billing gives every open hold a whole lease when it is back.
                _log.warning("holds_not_renewed", count=len(batch))
                return
            for result in results:
                if result.status in _GONE:
                    self.drop(result.reservation_id)


def _batches(ids: list[str]) -> list[list[str]]:
    return [ids[start : start + _MAX_ITEMS] for start in range(0, len(ids), _MAX_ITEMS)]
