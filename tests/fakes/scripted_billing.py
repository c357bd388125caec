"""A billing that remembers, refuses and is silent on demand, for tests of the edge's side of the protocol.

It keeps the reservation table of the contract in a few lines (no ledger, no store); the real billing has tests of its own.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc
from speedinfer.billing.v1 import access_pb2, access_pb2_grpc, reservation_pb2_grpc
from speedinfer.billing.v1 import reservation_pb2 as messages
from speedinfer.common.v1.usage_pb2 import Usage

from services.common import apikey, money, rpc

KEY, KEY_STORED = apikey.make_key()
ACCOUNT = "acct_1"
PROMPT_NANOS, COMPLETION_NANOS = 200, 600
OUTPUT_LIMIT = 77
LEASE_MS = 60_000
_State = messages.ReservationState


@dataclass
class Hold:
    item: messages.ReserveItem
    state: messages.ReservationState.ValueType = _State.RESERVATION_STATE_HELD
    settled: messages.SettleItem | None = None
    cause: str = ""
    worker_id: str = ""
    attempts: int = 0
    renewals: int = 0


@dataclass
class ScriptedBilling(reservation_pb2_grpc.ReservationServiceServicer, access_pb2_grpc.AccessServiceServicer):
    holds: dict[str, Hold] = field(default_factory=dict)
    # What was called, in order: (method, reservation id).
    calls: list[tuple[str, str]] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    key_status: access_pb2.KeyStatus.ValueType = access_pb2.KeyStatus.KEY_STATUS_ACTIVE
    refusal: messages.Refusal | None = None
    # What a hold by a worker's count is refused with; None: it is held.
    counted_refusal: messages.Refusal | None = None
    limits: messages.LimitState | None = None
    settle_status: messages.SettleStatus.ValueType = messages.SettleStatus.SETTLE_STATUS_SETTLED
    authorisations: int = 0
    lease_ms: int = LEASE_MS
    # What a call to renew these comes to; None: an answer.
    renew_fault: Callable[[list[str]], grpc.StatusCode | None] = lambda _ids: None
    port: int = 0

    def __post_init__(self) -> None:
        # While one of these is clear, the calls of that name get no answer.
        self.settles = asyncio.Event()
        self.settles.set()
        self.reserves = asyncio.Event()
        self.reserves.set()
        self.authorises = asyncio.Event()
        self.authorises.set()
        self._server: rpc.Server | None = None

    async def start(self, port: int = 0, host: str = "127.0.0.1") -> None:
        self._server = rpc.Server([rpc.ErrorStatuses()])
        reservation_pb2_grpc.add_ReservationServiceServicer_to_server(self, self._server.grpc)
        access_pb2_grpc.add_AccessServiceServicer_to_server(self, self._server.grpc)
        self._server.offers("speedinfer.billing.v1.ReservationService")
        self.port = await self._server.start(f"{host}:{port}")

    async def stop(self) -> None:
        assert self._server is not None
        await self._server.drain(0)

    @property
    def only(self) -> Hold:
        """The one hold that was made."""
        assert len(self.holds) == 1, list(self.holds)
        return next(iter(self.holds.values()))

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    async def AuthorizeKeys(
        self, request: access_pb2.AuthorizeKeysRequest, _context: grpc.aio.ServicerContext
    ) -> access_pb2.AuthorizeKeysResponse:
        self.authorisations += 1
        await self.authorises.wait()
        results = []
        for item in request.items:
            known = item.key_id == KEY_STORED.key_id and item.key_sha256 == KEY_STORED.sha256
            status = self.key_status if known else access_pb2.KeyStatus.KEY_STATUS_UNKNOWN
            active = status == access_pb2.KeyStatus.KEY_STATUS_ACTIVE
            results.append(
                access_pb2.Authorization(
                    key_id=item.key_id,
                    status=status,
                    account_id=ACCOUNT if active else "",
                    models=self.models if active else [],
                )
            )
        return access_pb2.AuthorizeKeysResponse(results=results)

    async def Reserve(
        self, request: messages.ReserveRequest, _context: grpc.aio.ServicerContext
    ) -> messages.ReserveResponse:
        await self.reserves.wait()
        results = []
        for item in request.items:
            self.calls.append(("reserve", item.reservation_id))
            result = messages.ReserveResult(reservation_id=item.reservation_id)
            if self.limits is not None:
                result.limits.CopyFrom(self.limits)
            refusal = self.counted_refusal if item.HasField("counted_prompt_tokens") else self.refusal
            if refusal is not None:
                result.refusal.CopyFrom(refusal)
            else:
                self.holds[item.reservation_id] = Hold(item)
                result.reservation.CopyFrom(self._reservation(item.reservation_id))
            results.append(result)
        return messages.ReserveResponse(results=results)

    async def Renew(self, request: messages.RenewRequest, context: grpc.aio.ServicerContext) -> messages.RenewResponse:
        results = []
        self.calls += [("renew", item.reservation_id) for item in request.items]
        if (code := self.renew_fault([item.reservation_id for item in request.items])) is not None:
            await context.abort(code, "as the test wants it")
        for item in request.items:
            hold = self.holds.get(item.reservation_id)
            status = messages.RenewStatus.RENEW_STATUS_UNKNOWN
            if hold is not None:
                hold.renewals += 1
                held = hold.state == _State.RESERVATION_STATE_HELD
                status = messages.RenewStatus.RENEW_STATUS_RENEWED if held else messages.RenewStatus.RENEW_STATUS_CLOSED
            results.append(
                messages.RenewResult(reservation_id=item.reservation_id, status=status, lease_ms=self.lease_ms)
            )
        return messages.RenewResponse(results=results)

    async def Settle(
        self, request: messages.SettleRequest, _context: grpc.aio.ServicerContext
    ) -> messages.SettleResponse:
        for item in request.items:
            self.calls.append(("settle", item.reservation_id))
        await self.settles.wait()
        results = []
        for item in request.items:
            result = messages.SettleResult(reservation_id=item.reservation_id, status=self.settle_status)
            hold = self.holds.setdefault(item.reservation_id, Hold(messages.ReserveItem()))
            if self.settle_status == messages.SettleStatus.SETTLE_STATUS_SETTLED:
                assert hold.settled is None or hold.settled == item, "one id, two contents"
                hold.state, hold.settled = _State.RESERVATION_STATE_SETTLED, item
                result.reservation.CopyFrom(self._reservation(item.reservation_id))
            results.append(result)
        return messages.SettleResponse(results=results)

    async def Release(
        self, request: messages.ReleaseRequest, _context: grpc.aio.ServicerContext
    ) -> messages.ReleaseResponse:
        results = []
        for item in request.items:
            self.calls.append(("release", item.reservation_id))
            hold = self.holds.setdefault(item.reservation_id, Hold(messages.ReserveItem()))
            assert hold.settled is None, "a release after a settlement"
            hold.state, hold.cause = _State.RESERVATION_STATE_RELEASED, item.cause
            hold.worker_id, hold.attempts = item.worker_id, item.attempts
            status = messages.ReleaseStatus.RELEASE_STATUS_RELEASED
            results.append(messages.ReleaseResult(reservation_id=item.reservation_id, status=status))
        return messages.ReleaseResponse(results=results)

    async def GetAccountUsage(
        self, request: access_pb2.GetAccountUsageRequest, _context: grpc.aio.ServicerContext
    ) -> access_pb2.GetAccountUsageResponse:
        assert request.account_id == ACCOUNT
        answer = access_pb2.GetAccountUsageResponse(
            balance=money.to_money(9_999_994_600), held=money.to_money(0), available=money.to_money(9_999_994_600)
        )
        answer.models.add(model="acme/model-1", requests=1, prompt_tokens=12, completion_tokens=5).cost.CopyFrom(
            money.to_money(5400)
        )
        return answer

    async def GetRequest(
        self, request: access_pb2.GetRequestRequest, context: grpc.aio.ServicerContext
    ) -> access_pb2.GetRequestResponse:
        if request.request_id not in self.holds:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such request")
        return access_pb2.GetRequestResponse(reservation=self._reservation(request.request_id))

    def _reservation(self, reservation_id: str) -> messages.Reservation:
        hold = self.holds[reservation_id]
        found = messages.Reservation(
            reservation_id=reservation_id,
            account_id=ACCOUNT,
            key_id=KEY_STORED.key_id,
            model=hold.item.model,
            operation=hold.item.operation,
            state=hold.state,
            hold=money.to_money(1_000_000),
            output_limit=OUTPUT_LIMIT,
            price_version="price-1",
            lease_ms=self.lease_ms,
        )
        if hold.settled is not None:
            found.charge.CopyFrom(money.to_money(charge(hold.settled.usage)))
            found.usage.CopyFrom(hold.settled.usage)
            found.worker_id, found.attempts = hold.settled.worker_id, hold.settled.attempts
            found.ending = hold.settled.ending
        return found


def charge(usage: Usage) -> int:
    return usage.prompt_tokens * PROMPT_NANOS + usage.completion_tokens * COMPLETION_NANOS
