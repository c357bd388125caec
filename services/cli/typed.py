"""What people type: amounts, instants, durations, lists, counts. What cannot be read is wrong usage (exit code 2).

Pure but for the clock that `instant` is given by default. Imported by the command's modules only.
"""

import re
from datetime import UTC, datetime, timedelta

import typer

from services.common.money import MoneyError, parse_usd

_DURATION = re.compile(r"(\d{1,9})(ms|s|m|h|d|w)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}


def amount(text: str | int) -> int:
    """Nano-USD of an amount in USD, of any sign."""
    if isinstance(text, int):
        return text
    try:
        return parse_usd(text)
    except MoneyError as error:
        raise typer.BadParameter(str(error)) from None


def positive_amount(text: str | int) -> int:
    """Nano-USD of an amount above zero."""
    nanos = amount(text)
    if nanos <= 0:
        raise typer.BadParameter("the amount must be more than zero")
    return nanos


def credit(text: str | int) -> int:
    """Nano-USD of an amount of zero or more."""
    nanos = amount(text)
    if nanos < 0:
        raise typer.BadParameter("the amount may not be negative")
    return nanos


# A price is typed as USD per million tokens, which is how it is stored: nano-USD per million tokens.
price = credit


def duration_ms(text: str | int) -> int:
    """Milliseconds of `90s`, `15m`, `24h`, `7d`."""
    if isinstance(text, int):
        return text
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration; write 90s, 15m, 24h or 7d")
    return int(match[1]) * _UNIT_MS[match[2]]


def instant(text: str | datetime, now: datetime | None = None) -> datetime:
    """An instant: `2026-01-31`, `2026-01-31T12:00:00Z` (UTC unless it says otherwise), or a duration from now."""
    if isinstance(text, datetime):
        return text
    if _DURATION.fullmatch(text.strip()):
        return (now or datetime.now(UTC)) + timedelta(milliseconds=duration_ms(text))
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time; write 2026-01-31T12:00:00Z, or 30d for in 30 days") from None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def later(text: str | datetime, now: datetime | None = None) -> datetime:
    """An instant that is still to come."""
    at = instant(text, now)
    if at <= (now or datetime.now(UTC)):
        raise typer.BadParameter(f"{text!r} is past; it must be a time to come")
    return at


def names(text: str | None) -> list[str]:
    """The names in a list such as `A,B`."""
    return [name for part in (text or "").split(",") if (name := part.strip())]
