"""The age of ids that clients make. Pure; anything in billing may import it.

Ids are UUIDv7, so their age is known without a look-up. Billing keeps them for a time and refuses older ones, because it
could no longer tell a repeated call from a new one.
"""

from enum import Enum

from services.billing.reservation import Reservation, State
from services.common import ids

# How far a client's clock may be ahead of billing's.
FUTURE_MS = 5 * 60_000
DAY_MS = 86_400_000


class Age(Enum):
    """What an id's text says of itself."""

    GOOD = "good"
    MALFORMED = "malformed"
    EXPIRED = "expired"
    FUTURE = "future"


def age(text: str, now_ms: int, kept_days: int) -> Age:
    """Judge an id at a moment."""
    try:
        made_at_ms = ids.uuid7_ms(text)
    except ValueError:
        return Age.MALFORMED
    if made_at_ms < now_ms - kept_days * DAY_MS:
        return Age.EXPIRED
    if made_at_ms > now_ms + FUTURE_MS:
        return Age.FUTURE
    return Age.GOOD


def stored_age(text: str, known: Reservation | None, now_ms: int, kept_days: int) -> Age:
    """The same of a reservation's id. What is stored is kept as long from its making here, whatever clock made its id; and an
    open hold is never too old to be closed."""
    judged = age(text, now_ms, kept_days)
    if judged is not Age.EXPIRED or known is None:
        return judged
    kept = known.state is State.HELD or known.created_at_ms >= now_ms - kept_days * DAY_MS
    return Age.GOOD if kept else Age.EXPIRED
