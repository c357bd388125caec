"""The age of ids that clients make. Pure; anything in billing may import it.

Ids are UUIDv7, so their age is known without a look-up. Billing keeps them for a time and refuses older ones, because it
could no longer tell a repeated call from a new one.
"""

from enum import Enum

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
