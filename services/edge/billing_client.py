"""Billing as the edge calls it: every call has a deadline, and calls that may be repeated are, within it.

All of billing's mutations are idempotent by the ids in them, so UNAVAILABLE (no connection, restart) is tried again, and any
of several billings may be asked (see `billing_pool.py`). What remains raises `BillingUnavailable`: the outcome is then unknown.
What is asked for one request at a time shares messages with what others ask (see `batching.py`); where too many wait to ask,
they are told what a busy billing would say.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import grpc
from google.protobuf.message import Message
from speedinfer.billing.v1 import access_pb2, reservation_pb2

from services.edge.batching import Batching
from services.edge.billing_errors import AGAIN, UNANSWERED, BillingUnavailable, NotSent, QueueFull
from services.edge.billing_pool import BillingPool
from services.edge.known_billing import Method
from services.edge.metrics import Metrics

__all__ = ["BillingClient", "BillingUnavailable", "NotSent"]

T = TypeVar("T")
Item = TypeVar("Item", bound=Message)
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5
_RESERVE: Method[reservation_pb2.ReserveResponse] = lambda billing: billing.reservations.Reserve  # noqa: E731
_SETTLE: Method[reservation_pb2.SettleResponse] = lambda billing: billing.reservations.Settle  # noqa: E731
_RELEASE: Method[reservation_pb2.ReleaseResponse] = lambda billing: billing.reservations.Release  # noqa: E731
_RENEW: Method[reservation_pb2.RenewResponse] = lambda billing: billing.reservations.Renew  # noqa: E731
_AUTHORIZE: Method[access_pb2.AuthorizeKeysResponse] = lambda billing: billing.access.AuthorizeKeys  # noqa: E731
_USAGE: Method[access_pb2.GetAccountUsageResponse] = lambda billing: billing.access.GetAccountUsage  # noqa: E731
_REQUEST: Method[access_pb2.GetRequestResponse] = lambda billing: billing.access.GetRequest  # noqa: E731
_BUSY = reservation_pb2.Refusal(
    reason=reservation_pb2.REFUSAL_REASON_BUSY, message="billing is busy; try again", retry_after_ms=200
)


class BillingClient:
    """Calls of ReservationService and AccessService."""

    def __init__(self, targets: Sequence[str], timeout_s: float, metrics: Metrics | None = None) -> None:
        metrics = metrics or Metrics()
        self._pool = pool = BillingPool(targets, metrics)
        self._timeout_s = timeout_s

        async def reserve(
            items: list[reservation_pb2.ReserveItem], timeout_s: float
        ) -> Sequence[reservation_pb2.ReserveResult]:
            return (await pool.ask(_RESERVE, reservation_pb2.ReserveRequest(items=items), timeout_s)).results

        async def settle(
            items: list[reservation_pb2.SettleItem], timeout_s: float
        ) -> Sequence[reservation_pb2.SettleResult]:
            return (await pool.ask(_SETTLE, reservation_pb2.SettleRequest(items=items), timeout_s)).results

        async def release(
            items: list[reservation_pb2.ReleaseItem], timeout_s: float
        ) -> Sequence[reservation_pb2.ReleaseResult]:
            return (await pool.ask(_RELEASE, reservation_pb2.ReleaseRequest(items=items), timeout_s)).results

        async def authorize(
            items: list[access_pb2.PresentedKey], timeout_s: float
        ) -> Sequence[access_pb2.Authorization]:
            return (await pool.ask(_AUTHORIZE, access_pb2.AuthorizeKeysRequest(items=items), timeout_s)).results

        self._reserves = _batching("reserves", reserve, metrics)
        self._settles = _batching("settles", settle, metrics)
        self._releases = _batching("releases", release, metrics)
        self._authorisations = _batching("authorisations", authorize, metrics)

    async def start(self) -> None:
        """Look up what the settings name, until `close`. Before it, names stand for themselves."""
        await self._pool.start()

    @property
    def channels(self) -> Sequence[grpc.aio.Channel]:
        """To each process."""
        return self._pool.channels

    async def reserve(self, item: reservation_pb2.ReserveItem) -> reservation_pb2.ReserveResult:
        """One hold. NotSent where there is none, and will be none."""
        try:
            return await self._reserves.ask(item, self._timeout_s)
        except QueueFull:
            return reservation_pb2.ReserveResult(reservation_id=item.reservation_id, refusal=_BUSY)

    async def settle(self, item: reservation_pb2.SettleItem, timeout_s: float) -> reservation_pb2.SettleResult:
        """One charge."""
        try:
            return await self._settles.ask(item, timeout_s)
        except QueueFull:
            busy = reservation_pb2.SETTLE_STATUS_BUSY
            return reservation_pb2.SettleResult(reservation_id=item.reservation_id, status=busy)

    async def settle_again(
        self, items: Sequence[reservation_pb2.SettleItem], timeout_s: float
    ) -> Sequence[reservation_pb2.SettleResult]:
        """Charges that were left over, answered in their order: in a message of their own, so that nobody who waits now
        waits for them."""
        request = reservation_pb2.SettleRequest(items=items)
        return _results((await self._call(_SETTLE, request, timeout_s)).results, len(items))

    async def release(self, item: reservation_pb2.ReleaseItem) -> reservation_pb2.ReleaseResult:
        """One hold given back."""
        try:
            return await self._releases.ask(item, self._timeout_s)
        except QueueFull:
            busy = reservation_pb2.RELEASE_STATUS_BUSY
            return reservation_pb2.ReleaseResult(reservation_id=item.reservation_id, status=busy)

    async def renew(self, reservation_ids: Sequence[str]) -> Sequence[reservation_pb2.RenewResult]:
        """Leases made longer. One caller has them all."""
        items = [reservation_pb2.RenewItem(reservation_id=each) for each in reservation_ids]
        request = reservation_pb2.RenewRequest(items=items)
        return _results((await self._call(_RENEW, request, self._timeout_s)).results, len(items))

    async def authorize(self, key: access_pb2.PresentedKey) -> access_pb2.Authorization:
        """What a key may do."""
        return await self._authorisations.ask(key, self._timeout_s)

    async def account_usage(self, request: access_pb2.GetAccountUsageRequest) -> access_pb2.GetAccountUsageResponse:
        """An account's figures."""
        return await self._call(_USAGE, request, self._timeout_s)

    async def request(self, account_id: str, request_id: str) -> reservation_pb2.Reservation | None:
        """What became of one request; None if the account has no such request."""
        message = access_pb2.GetRequestRequest(account_id=account_id, request_id=request_id)
        try:
            answer = await self._call(_REQUEST, message, self._timeout_s)
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT):
                return None
            raise
        return answer.reservation

    async def close(self) -> None:
        """Send nothing more, and close the connections."""
        for batching in (self._reserves, self._settles, self._releases, self._authorisations):
            await batching.close()
        await self._pool.close()

    async def _call(self, method: Method[T], request: Message, timeout_s: float) -> T:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await self._pool.ask(method, request, max(deadline - loop.time(), 0.001))
            except grpc.aio.AioRpcError as error:
                code = error.code()
                if code not in UNANSWERED:
                    raise
                if code not in AGAIN or loop.time() + pause_s >= deadline:
                    raise BillingUnavailable(code.name) from None
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


def _batching(
    kind: str, send: Callable[[list[Item], float], Awaitable[Sequence[T]]], metrics: Metrics
) -> Batching[Item, T]:
    """Calls of one kind, and their figures: one observation a message, and a length whenever somebody looks."""
    made: Batching[Item, T] = Batching(kind, send, sending=metrics.billing_message_items.labels(kind).observe)
    metrics.billing_waiting_items.labels(kind).set_function(lambda: len(made))
    return made


def _results(results: Sequence[T], expected: int) -> Sequence[T]:
    """The results of a call that answers each item."""
    if len(results) != expected:
        raise BillingUnavailable(f"{len(results)} results for {expected} items")
    return results
