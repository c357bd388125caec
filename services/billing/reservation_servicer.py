"""ReservationService: items to operations, answers to results. The composition root uses it."""

from typing import Any

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
        for result in results:
            refused = result.WhichOneof("outcome") == "refusal"
            outcome = (
                pb.RefusalReason.Name(result.refusal.reason).removeprefix("REFUSAL_REASON_").lower()
                if refused
                else pb.ReservationState.Name(result.reservation.state).removeprefix("RESERVATION_STATE_").lower()
            )
            self._metrics.reservations.labels(outcome).inc()
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
        for result in results:
            self._count(result)
        return pb.SettleResponse(results=results)

    async def Release(self, request: pb.ReleaseRequest, context: Any) -> pb.ReleaseResponse:
        """See the proto."""
        results = await self._intake.run([Release(item, self._rules) for item in request.items])
        if results is None:
            busy = pb.RELEASE_STATUS_BUSY
            results = [pb.ReleaseResult(reservation_id=item.reservation_id, status=busy) for item in request.items]
        for result in results:
            outcome = pb.ReleaseStatus.Name(result.status).removeprefix("RELEASE_STATUS_").lower()
            self._metrics.releases.labels(outcome).inc()
        return pb.ReleaseResponse(results=results)

    def _count(self, result: pb.SettleResult) -> None:
        outcome = pb.SettleStatus.Name(result.status).removeprefix("SETTLE_STATUS_").lower()
        self._metrics.settlements.labels(outcome).inc()
        if result.status not in (pb.SETTLE_STATUS_SETTLED, pb.SETTLE_STATUS_LATE):
            return
        if result.reservation.overrun:
            self._metrics.overruns.inc()
        if charge_nanos := from_money(result.reservation.charge):
            self._metrics.hold_to_charge.observe(from_money(result.reservation.hold) / charge_nanos)
