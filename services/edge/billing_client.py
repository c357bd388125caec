"""Billing as the edge calls it: every call has a deadline, and calls that may be repeated are, within it.

All of billing's mutations are idempotent by the ids in them, so UNAVAILABLE (no connection, restart) is tried again. What
remains raises `BillingUnavailable`: the outcome is then unknown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import grpc
from google.protobuf.message import Message
from speedinfer.billing.v1 import access_pb2, access_pb2_grpc, reservation_pb2, reservation_pb2_grpc

from services.common import rpc

T = TypeVar("T")
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5
# CANCELLED is what a call gets that crosses with a server's end: nobody else cancels one of these.
_AGAIN = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})


class BillingUnavailable(Exception):
    """Billing gave no answer within the deadline; what was asked may or may not have been done."""


class BillingClient:
    """Calls of ReservationService and AccessService."""

    def __init__(self, target: str, timeout_s: float) -> None:
        self.channel = rpc.channel(target)
        self._timeout_s = timeout_s
        self._reservations = reservation_pb2_grpc.ReservationServiceStub(self.channel)
        self._access = access_pb2_grpc.AccessServiceStub(self.channel)

    async def reserve(self, item: reservation_pb2.ReserveItem) -> reservation_pb2.ReserveResult:
        """One hold."""
        request = reservation_pb2.ReserveRequest(items=[item])
        return _results((await self._call(self._reservations.Reserve, request, self._timeout_s)).results, 1)[0]

    async def settle(
        self, items: Sequence[reservation_pb2.SettleItem], timeout_s: float
    ) -> Sequence[reservation_pb2.SettleResult]:
        """Charges, answered in their order."""
        request = reservation_pb2.SettleRequest(items=items)
        return _results((await self._call(self._reservations.Settle, request, timeout_s)).results, len(items))

    async def release(self, item: reservation_pb2.ReleaseItem) -> reservation_pb2.ReleaseResult:
        """One hold given back."""
        request = reservation_pb2.ReleaseRequest(items=[item])
        return _results((await self._call(self._reservations.Release, request, self._timeout_s)).results, 1)[0]

    async def renew(self, reservation_ids: Sequence[str]) -> Sequence[reservation_pb2.RenewResult]:
        """Leases made longer."""
        items = [reservation_pb2.RenewItem(reservation_id=each) for each in reservation_ids]
        request = reservation_pb2.RenewRequest(items=items)
        return _results((await self._call(self._reservations.Renew, request, self._timeout_s)).results, len(items))

    async def authorize(self, key: access_pb2.PresentedKey) -> access_pb2.Authorization:
        """What a key may do."""
        request = access_pb2.AuthorizeKeysRequest(items=[key])
        return _results((await self._call(self._access.AuthorizeKeys, request, self._timeout_s)).results, 1)[0]

    async def account_usage(self, request: access_pb2.GetAccountUsageRequest) -> access_pb2.GetAccountUsageResponse:
        """An account's figures."""
        return await self._call(self._access.GetAccountUsage, request, self._timeout_s)

    async def request(self, account_id: str, request_id: str) -> reservation_pb2.Reservation | None:
        """What became of one request; None if the account has no such request."""
        message = access_pb2.GetRequestRequest(account_id=account_id, request_id=request_id)
        try:
            answer = await self._call(self._access.GetRequest, message, self._timeout_s)
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT):
                return None
            raise
        return answer.reservation

    async def close(self) -> None:
        """Close the connection."""
        await self.channel.close()

    async def _call(self, method: Callable[..., Awaitable[T]], request: Message, timeout_s: float) -> T:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await method(request, timeout=max(deadline - loop.time(), 0.001))
            except grpc.aio.AioRpcError as error:
                code = error.code()
                if code not in _AGAIN and code not in _UNANSWERED:
                    raise
                if code not in _AGAIN or loop.time() + pause_s >= deadline:
                    raise BillingUnavailable(code.name) from None
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


# Statuses that say nothing of the request; every other one is an answer, and an error in one of the two services.
_UNANSWERED = frozenset(
    {
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.ABORTED,
    }
)


def _results(results: Sequence[T], expected: int) -> Sequence[T]:
    """The results of a call that answers each item."""
    if len(results) != expected:
        raise BillingUnavailable(f"{len(results)} results for {expected} items")
    return results
