"""Records as messages, and moments. Pure; operations and servicers import it."""

from typing import Any, TypeVar

from google.protobuf import timestamp_pb2
from speedinfer.billing.v1 import account_pb2, key_pb2, price_pb2, reservation_pb2, usage_pb2

from services.billing.key import Key
from services.billing.ledger import Account
from services.billing.limits import Limits
from services.billing.price import PriceVersion
from services.billing.reservation import Reservation
from services.billing.store.port import ModelSum
from services.common.errors import InvalidArgument
from services.common.money import money_fields, to_money

M = TypeVar("M", key_pb2.KeyLimits, account_pb2.AccountLimits)
# The last second of the year 9999, as google.protobuf.Timestamp has it.
MAX_SECONDS = 253_402_300_799


def timestamp(at_ms: int) -> timestamp_pb2.Timestamp:
    """The wire form of a moment."""
    seconds, rest_ms = divmod(at_ms, 1000)
    return timestamp_pb2.Timestamp(seconds=seconds, nanos=rest_ms * 1_000_000)


def moment_ms(value: timestamp_pb2.Timestamp) -> int | None:
    """A moment in milliseconds since the epoch, or None if it is before that or no timestamp."""
    if not (0 <= value.seconds <= MAX_SECONDS and 0 <= value.nanos < 1_000_000_000):
        return None
    return int(value.seconds * 1000 + value.nanos // 1_000_000)


def _moment(at_ms: int) -> dict[str, int]:
    seconds, rest_ms = divmod(at_ms, 1000)
    return {"seconds": seconds, "nanos": rest_ms * 1_000_000}


def window(request: object, now_ms: int, start_ms: int) -> tuple[int, int]:
    """`from` and `to` (exclusive) of a question, or what it means where they are absent."""
    bounds = []
    for name, default in (("from", start_ms), ("to", now_ms)):
        found = moment_ms(getattr(request, name)) if request.HasField(name) else default  # type: ignore[attr-defined]
        if found is None:
            raise InvalidArgument(f"{name!r} is no moment since 1970", field=name)
        bounds.append(found)
    return bounds[0], bounds[1]


def reservation(one: Reservation, lease_ms: int = 0) -> reservation_pb2.Reservation:
    """A reservation."""
    return reservation_pb2.Reservation(**reservation_fields(one, lease_ms))


def reservation_fields(one: Reservation, lease_ms: int = 0) -> Any:
    """The same as the values of its fields, for an answer that is made with it inside: half the time of one made apart, and
    every reserve and settle answers with one."""
    charged, usage = one.charge_nanos is not None, one.usage
    return {
        "reservation_id": one.reservation_id,
        "state": int(one.state),
        "lease_ms": lease_ms,
        "created_at": _moment(one.created_at_ms),
        "closed_at": None if one.closed_at_ms is None else _moment(one.closed_at_ms),
        "account_id": one.account_id,
        "key_id": one.key_id,
        "model": one.model,
        "operation": one.operation,
        "hold": None if one.account_id is None else money_fields(one.hold_nanos),
        "price_version": one.price_version,
        "output_limit": one.output_limit,
        "worker_id": one.worker_id,
        "attempts": one.attempts,
        "cause": one.cause,
        "charge": None if one.charge_nanos is None else money_fields(one.charge_nanos),
        "usage": None if usage is None or not charged else usage.fields(),
        "ending": one.ending if charged else None,
        "overrun": one.overrun and charged,
    }


def account(one: Account) -> account_pb2.Account:
    """An account."""
    return account_pb2.Account(
        account_id=one.account_id,
        name=one.name,
        balance=to_money(one.balance_nanos),
        held=to_money(one.held_nanos),
        available=to_money(one.available_nanos),
        created_at=timestamp(one.created_at_ms),
        open_holds=one.open_holds,
        limits=account_limits(one),
    )


def key(one: Key, now_ms: int) -> key_pb2.Key:
    """A key without its hash."""
    message = key_pb2.Key(
        key_id=one.key_id,
        account_id=one.account_id,
        name=one.name,
        status=int(one.status(now_ms)),  # type: ignore[arg-type]
        limits=limits(one.limits),
        created_at=timestamp(one.created_at_ms),
        replaces_key_id=one.replaces_key_id,
    )
    if one.revoked_at_ms is not None:
        message.revoked_at.CopyFrom(timestamp(one.revoked_at_ms))
    return message


def limits(one: Limits) -> key_pb2.KeyLimits:
    """A key's limits."""
    return _fill(key_pb2.KeyLimits(), one)


def account_limits(one: Account) -> account_pb2.AccountLimits:
    """An account's limits."""
    message = _fill(account_pb2.AccountLimits(), one.limits)
    if one.credit_limit_nanos:
        message.credit_limit.CopyFrom(to_money(one.credit_limit_nanos))
    return message


def _fill(message: M, one: Limits) -> M:
    for name in ("requests_per_minute", "tokens_per_minute", "concurrency"):
        if (value := getattr(one, name)) is not None:
            setattr(message, name, value)
    message.models.extend(one.models)
    if one.expires_at_ms is not None:
        message.expires_at.CopyFrom(timestamp(one.expires_at_ms))
    if one.daily_spend_nanos is not None:
        message.daily_spend.CopyFrom(to_money(one.daily_spend_nanos))
    if one.monthly_spend_nanos is not None:
        message.monthly_spend.CopyFrom(to_money(one.monthly_spend_nanos))
    return message


def price(one: PriceVersion) -> price_pb2.PriceVersion:
    """A price version, with nothing left to defaults."""
    bounds = one.bounds
    return price_pb2.PriceVersion(
        version=one.version,
        model=one.model,
        effective_from=timestamp(one.effective_from_ms),
        tiers=[
            price_pb2.PriceTier(
                from_prompt_tokens=tier.from_prompt_tokens,
                prompt=to_money(tier.prompt_nanos),
                cached_prompt=to_money(tier.cached_nanos),
                completion=to_money(tier.completion_nanos),
            )
            for tier in one.tiers
        ],
        bounds=price_pb2.ModelBounds(
            max_output_tokens=bounds.max_output_tokens,
            default_output_tokens=bounds.default_output_tokens,
            tokens_per_byte=bounds.tokens_per_byte,
            template_request_tokens=bounds.template_request_tokens,
            template_message_tokens=bounds.template_message_tokens,
            tools_request_tokens=bounds.tools_request_tokens,
            tools_message_tokens=bounds.tools_message_tokens,
            image_tokens=bounds.image_tokens,
        ),
        account_id=one.account_id,
        created_at=timestamp(one.created_at_ms),
    )


def model_usage(one: ModelSum) -> usage_pb2.ModelUsage:
    """A sum of charges."""
    return usage_pb2.ModelUsage(
        model=one.model,
        requests=one.requests,
        prompt_tokens=one.prompt_tokens,
        cached_prompt_tokens=one.cached_tokens,
        completion_tokens=one.completion_tokens,
        cost=to_money(one.cost_nanos),
    )


def entry_id(number: int) -> str:
    """An entry's id."""
    return f"ent_{number}"


def transaction_id(number: int) -> str:
    """A transaction's id."""
    return f"txn_{number}"
