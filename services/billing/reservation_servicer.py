"""ReservationService: items to operations, answers to results. The composition root uses it."""

import collections
from collections.abc import Iterable
from typing import Any

import prometheus_client
from speedinfer.billing.v1 import reservation_pb2 as pb
from speedinfer.billing.v1 import reservation_pb2_grpc

from services.billing.intake import Intake
from services.billing.metrics import Metrics
from services.billing.operations.release import Release
from services.billing.operations.renew import Renew
from services.billing.operations.reserve import Reserve
from services.billing.operations.settle import Settle
from services.billing.rules import Rules
from services.common.errors import Unavailable
from services.common.money import from_money

# When a full queue may have room again.
BUSY_RETRY_MS = 200


class ReservationServicer(reservation_pb2_grpc.ReservationServiceServicer):
    """See the proto."""

    def __init__(self, intake: Intake, rules: Rules, metrics: Metrics) -> None:
        self._intake = intake
        self._rules = rules
        self._metrics = metrics

    async def Reserve(self, request: pb.ReserveRequest, context: Any) -> pb.ReserveResponse:
        """See the proto."""
        results = await self._intake.run([Reserve(item, self._rules) for item in request.items])
        if results is None:
            busy = pb.Refusal(
                reason=pb.REFUSAL_REASON_BUSY, message="billing is busy; try again", retry_after_ms=BUSY_RETRY_MS
            )
            results = [pb.ReserveResult(reservation_id=item.reservation_id, refusal=busy) for item in request.items]
        _count(self._metrics.reservations, (_reserve_outcome(result) for result in results))
        return pb.ReserveResponse(results=results)

    async def Renew(self, request: pb.RenewRequest, context: Any) -> pb.RenewResponse:
        """See the proto."""
        results = await self._intake.run([Renew(item) for item in request.items])
        if results is None:
            raise Unavailable("billing is busy; try again")
        return pb.RenewResponse(results=results)

    async def Settle(self, request: pb.SettleRequest, context: Any) -> pb.SettleResponse:
        """See the proto."""
        results = await self._intake.run([Settle(item, self._rules) for item in request.items])
        if results is None:
            busy = pb.SETTLE_STATUS_BUSY
            results = [pb.SettleResult(reservation_id=item.reservation_id, status=busy) for item in request.items]
        _count(self._metrics.settlements, (_SETTLE_WORDS[result.status] for result in results))
        self._look_at_charges(results)
        return pb.SettleResponse(results=results)

    async def Release(self, request: pb.ReleaseRequest, context: Any) -> pb.ReleaseResponse:
        """See the proto."""
        results = await self._intake.run([Release(item, self._rules) for item in request.items])
        if results is None:
            busy = pb.RELEASE_STATUS_BUSY
            results = [pb.ReleaseResult(reservation_id=item.reservation_id, status=busy) for item in request.items]
        _count(self._metrics.releases, (_RELEASE_WORDS[result.status] for result in results))
        return pb.ReleaseResponse(results=results)

    def _look_at_charges(self, results: Iterable[pb.SettleResult]) -> None:
        for result in results:
            if result.status not in _CHARGED:
                continue
            if result.reservation.overrun:
                self._metrics.overruns.inc()
            if charge_nanos := from_money(result.reservation.charge):
                self._metrics.hold_to_charge.observe(from_money(result.reservation.hold) / charge_nanos)


def _words(kind: Any, prefix: str) -> dict[int, str]:
    """What a metric calls each value of an enum."""
    return {number: name.removeprefix(prefix).lower() for name, number in kind.items()}


_CHARGED = (pb.SETTLE_STATUS_SETTLED, pb.SETTLE_STATUS_LATE)
_REFUSAL_WORDS = _words(pb.RefusalReason, "REFUSAL_REASON_")
_STATE_WORDS = _words(pb.ReservationState, "RESERVATION_STATE_")
_SETTLE_WORDS = _words(pb.SettleStatus, "SETTLE_STATUS_")
_RELEASE_WORDS = _words(pb.ReleaseStatus, "RELEASE_STATUS_")


def _reserve_outcome(result: pb.ReserveResult) -> str:
    if result.HasField("refusal"):
        return _REFUSAL_WORDS[result.refusal.reason]
    return _STATE_WORDS[result.reservation.state]


def _count(metric: prometheus_client.Counter, outcomes: Iterable[str]) -> None:
    """Count a call's items, each outcome once."""
    for outcome, times in collections.Counter(outcomes).items():
        metric.labels(outcome).inc(times)
