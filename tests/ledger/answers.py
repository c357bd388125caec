"""What billing said, as the plain dictionaries that the auditor speaks."""

from typing import Any

from google.protobuf.wrappers_pb2 import UInt32Value
from speedinfer.billing.v1 import account_pb2, key_pb2, price_pb2
from speedinfer.billing.v1 import reservation_pb2 as pb

from tests.ledger.auditor import Answer
from tests.ledger.auditor_operators import DEFAULT_BOUNDS, moment, nanos


def read(answer: Any) -> Answer:
    """Any answer of the engine's."""
    match answer:
        case pb.ReserveResult():
            return _reserved(answer)
        case pb.RenewResult():
            return {"status": _word(pb.RenewStatus, answer.status), "lease_ms": answer.lease_ms}
        case pb.SettleResult():
            return _settled(answer)
        case pb.ReleaseResult():
            return {"status": _word(pb.ReleaseStatus, answer.status)}
        case UInt32Value():
            return {"lapsed": answer.value}
        case price_pb2.SetPricesResponse():
            return {"list": [read(one) for one in answer.results]}
    found: Answer = {"status": _word(account_pb2.MutationStatus, answer.status), "field": answer.field}
    if found["status"] != "DONE":
        # A reason is always said.
        return found if answer.message else {"silent": answer}
    match answer:
        case account_pb2.AccountResult():
            account = answer.account
            figures = {name: nanos(getattr(account, name)) for name in ("balance", "held", "available")}
            return {**found, "account": account.account_id, **figures}
        case key_pb2.KeyResult():
            return {**found, "key": answer.key.key_id}
        case price_pb2.PriceResult():
            price = answer.price
            bounds = {name: _optional(price.bounds, name) for name in DEFAULT_BOUNDS}
            return {**found, "version": price.version, "from_ms": moment(price.effective_from), "bounds": bounds}
    raise AssertionError(f"an answer of an unknown kind: {type(answer)}")


def _reserved(answer: pb.ReserveResult) -> Answer:
    limits = _limits(answer)
    if answer.HasField("reservation"):
        return {**_reservation(answer.reservation), "limits": limits}
    refusal = answer.refusal
    return {
        "refused": _word(pb.RefusalReason, refusal.reason),
        "field": refusal.field,
        "limit": refusal.limit,
        "retry_after_ms": refusal.retry_after_ms,
        "other": refusal.other_request_id,
        "other_charged": refusal.other_charged,
        "hold": _money(refusal, "hold"),
        "available": _money(refusal, "available"),
        "limits": limits,
    }


def _limits(answer: pb.ReserveResult) -> tuple[Any, ...] | None:
    if not answer.HasField("limits"):
        return None
    state = answer.limits
    found = [
        (left, limit) if (limit := _optional(state, f"{name}_limit")) is not None else None
        for name, left in (("requests", state.requests_remaining), ("tokens", state.tokens_remaining))
    ]
    return (*found, state.reset_ms)


def _settled(answer: pb.SettleResult) -> Answer:
    there = answer.HasField("reservation")
    return {
        "status": _word(pb.SettleStatus, answer.status),
        "field": answer.field,
        "reservation": _reservation(answer.reservation) if there else None,
        "balance": _money(answer, "balance"),
    }


def _reservation(one: pb.Reservation) -> Answer:
    charged = one.HasField("charge")
    usage = one.usage
    names = ("prompt_tokens", "cached_prompt_tokens", "completion_tokens")
    return {
        "state": _word(pb.ReservationState, one.state),
        "account": one.account_id,
        "key": one.key_id,
        "hold": nanos(one.hold),
        "output_limit": _optional(one, "output_limit"),
        "version": one.price_version,
        "lease_ms": one.lease_ms,
        "charge": nanos(one.charge) if charged else None,
        "counts": tuple(_optional(usage, name) for name in names) if charged else None,
        "overrun": one.overrun,
    }


def _optional(message: Any, name: str) -> Any:
    return getattr(message, name) if message.HasField(name) else None


def _money(message: Any, name: str) -> int | None:
    return nanos(getattr(message, name)) if message.HasField(name) else None


_PREFIXES = {
    pb.ReservationState: "RESERVATION_STATE_",
    pb.RefusalReason: "REFUSAL_REASON_",
    pb.RenewStatus: "RENEW_STATUS_",
    pb.SettleStatus: "SETTLE_STATUS_",
    pb.ReleaseStatus: "RELEASE_STATUS_",
    account_pb2.MutationStatus: "MUTATION_STATUS_",
}


def _word(enum: Any, value: int) -> str:
    return str(enum.Name(value)).removeprefix(_PREFIXES[enum])
