"""Money as integers of nano-USD (1e-9 USD). Anybody may import it.

There is no float here and none may come in: text is parsed by digits, `google.type.Money` by its two integers.
"""

import re
from typing import Any

from google.type import money_pb2

NANOS_PER_USD = 1_000_000_000
CURRENCY = "USD"
# google.type.Money holds whole units in an int64, but the ledger keeps nano-USD in one.
MAX_NANOS = 2**63 - 1
_MAX_DIGITS = 10

_DECIMAL = re.compile(r"([+-]?)([0-9]+)(?:\.([0-9]{1,9}))?")


class MoneyError(ValueError):
    """An amount that cannot be read; the text says why and is safe to show."""


def to_money(nanos: int) -> money_pb2.Money:
    """The wire form of an amount. Units and nanos carry the same sign, as google.type.Money demands."""
    return money_pb2.Money(**money_fields(nanos))


def money_fields(nanos: int) -> Any:
    """The same as the values of its fields, for a message that is made with others inside it."""
    units, rest = divmod(abs(nanos), NANOS_PER_USD)
    sign = -1 if nanos < 0 else 1
    return {"currency_code": CURRENCY, "units": sign * units, "nanos": sign * rest}


def from_money(money: money_pb2.Money) -> int:
    """Nano-USD of a wire amount. MoneyError for another currency, mixed signs or an amount out of range."""
    if money.currency_code not in ("", CURRENCY):
        raise MoneyError(f"currency {money.currency_code!r} is not {CURRENCY}")
    if abs(money.nanos) >= NANOS_PER_USD or (money.units > 0 > money.nanos) or (money.units < 0 < money.nanos):
        raise MoneyError("units and nanos must have one sign, and nanos be below a whole unit")
    nanos: int = money.units * NANOS_PER_USD + money.nanos
    if abs(nanos) > MAX_NANOS:
        raise MoneyError("the amount is out of range")
    return nanos


def format_usd(nanos: int) -> str:
    """An amount as decimal text in USD with nine places, such as `9.999994600`."""
    units, rest = divmod(abs(nanos), NANOS_PER_USD)
    return f"{'-' if nanos < 0 else ''}{units}.{rest:09d}"


def parse_usd(text: str) -> int:
    """Nano-USD of decimal text in USD with at most nine places. MoneyError if it is anything else."""
    match = _DECIMAL.fullmatch(text.strip())
    if match is None:
        raise MoneyError(f"{text!r} is not an amount in USD: digits with at most nine decimals are expected")
    sign, whole, fraction = match.groups()
    # Counted before they are read, since reading takes longer than their number.
    short = len(whole.lstrip("0")) <= _MAX_DIGITS
    nanos = int(whole[-_MAX_DIGITS:]) * NANOS_PER_USD + int((fraction or "").ljust(9, "0")) if short else MAX_NANOS + 1
    if nanos > MAX_NANOS:
        raise MoneyError(f"{text[:40]!r} is too large: an amount is at most {MAX_NANOS // NANOS_PER_USD} USD")
    return -nanos if sign == "-" else nanos
