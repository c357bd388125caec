"""Limits as operators send them, of keys and of accounts: read, or Refused with the field at fault. Pure.

`KeyLimits` and `AccountLimits` name what they have in common alike, so that one reader does for both.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from google.type import money_pb2
from speedinfer.billing.v1 import account_pb2 as pb

from services.billing import messages
from services.billing.ledger import Account
from services.billing.limits import NO_LIMITS, Limits
from services.billing.operations.mutation import invalid
from services.common.money import MoneyError, from_money

MAX_MODELS = 1_000
_COUNTS = ("requests_per_minute", "tokens_per_minute", "concurrency")
_SPENDS = {"daily_spend": "daily_spend_nanos", "monthly_spend": "monthly_spend_nanos"}
# What each field of AccountLimits is here, and the value that it has without a limit.
_NONE: dict[str, tuple[str, Any]] = {
    **{name: (name, None) for name in _COUNTS},
    **{name: (stored, None) for name, stored in _SPENDS.items()},
    "models": ("models", ()),
    "expires_at": ("expires_at_ms", None),
}


def amount(money: money_pb2.Money, field: str) -> int:
    """Nano-USD of an amount, or Refused."""
    try:
        return from_money(money)
    except MoneyError as error:
        raise invalid(field, str(error)) from None


def read_limits(message: Any, before: Limits = NO_LIMITS) -> Limits:
    """What is said, and where nothing is said what was before."""
    said: dict[str, Any] = {}
    for name in _COUNTS:
        if message.HasField(name):
            said[name] = _not_negative(getattr(message, name), name)
    for name, stored in _SPENDS.items():
        if message.HasField(name):
            said[stored] = _not_negative(amount(getattr(message, name), f"limits.{name}"), name)
    if len(message.models) > MAX_MODELS or not all(message.models):
        raise invalid("limits.models", f"at most {MAX_MODELS} names, none of them empty, are expected")
    if message.models:
        said["models"] = tuple(message.models)
    if message.HasField("expires_at"):
        said["expires_at_ms"] = messages.moment_ms(message.expires_at)
        if said["expires_at_ms"] is None:
            raise invalid("limits.expires_at", "this is no moment since 1970")
    return replace(before, **said)


def read_account_limits(message: pb.AccountLimits, account: Account, remove: Sequence[str] = ()) -> tuple[Limits, int]:
    """An account's limits and credit limit after a change."""
    credit_nanos = account.credit_limit_nanos
    if message.HasField("credit_limit"):
        credit_nanos = _not_negative(amount(message.credit_limit, "limits.credit_limit"), "credit_limit")
    limits = read_limits(message, account.limits)
    said = {field.name for field, _ in message.ListFields()}
    for name in remove:
        if name not in _NONE and name != "credit_limit":
            raise invalid(
                "remove", f"there is no limit {name!r}; there are {', '.join(sorted((*_NONE, 'credit_limit')))}"
            )
        if name in said:
            raise invalid("remove", f"{name} is set and taken away at once")
        if name == "credit_limit":
            credit_nanos = 0
        else:
            stored, nothing = _NONE[name]
            limits = replace(limits, **{stored: nothing})
    return limits, credit_nanos


def _not_negative(value: int, name: str) -> int:
    if value < 0:
        raise invalid(f"limits.{name}", "a limit cannot be negative")
    return value
