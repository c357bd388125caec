"""What a key or an account may do in a minute, a day, a month, and at once. Pure; anything in billing may import it.

Minutes, days and months are UTC. One counter a period is kept, for the current window: a reservation counts in the window in
which it was made, and a settlement corrects that window if it is still the current one. Calls that are refused do not count.

A key's limits are looked at before its account's, each in the order of `judge`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache

MINUTE_MS = 60_000
DAY_MS = 86_400_000
# When a place may be free again, for a caller that is at its bound of open holds.
CONCURRENCY_RETRY_MS = 1_000
# How far the clocks of processes on one database may be apart without a window being taken back. A clock that is further
# behind was stepped.
CLOCKS_APART_MS = 10_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a key or an account may do; None and an empty tuple mean without limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrency: int | None = None
    models: tuple[str, ...] = ()
    expires_at_ms: int | None = None
    daily_spend_nanos: int | None = None
    monthly_spend_nanos: int | None = None

    @property
    def counted(self) -> bool:
        """Whether any of them needs counters."""
        return not (
            self.requests_per_minute is None
            and self.tokens_per_minute is None
            and self.daily_spend_nanos is None
            and self.monthly_spend_nanos is None
        )

    @property
    def by_the_minute(self) -> bool:
        """Whether it has a limit of requests or tokens per minute."""
        return self.requests_per_minute is not None or self.tokens_per_minute is not None

    def allow(self, model: str) -> bool:
        """Whether the allow-list names the model; an empty list allows all."""
        return not self.models or model in self.models

    def ended(self, now_ms: int) -> bool:
        """Whether its end is reached."""
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms


NO_LIMITS = Limits()


def moment(wall_ms: int, counters: Iterable["Counters"]) -> int:
    """The moment at which to judge: now, but not before a minute that another process, whose clock is a little ahead, has
    begun in one of them. To go back would begin that minute, day and month anew with the next call."""
    begun_ms = [one.minute.start_ms for one in counters if one.minute.start_ms <= wall_ms + CLOCKS_APART_MS]
    return max(wall_ms, *begun_ms) if begun_ms else wall_ms


def minute_start(at_ms: int) -> int:
    """The UTC minute of a moment."""
    return at_ms - at_ms % MINUTE_MS


def day_start(at_ms: int) -> int:
    """The UTC day of a moment."""
    return at_ms - at_ms % DAY_MS


def month_start(at_ms: int) -> int:
    """The UTC month of a moment."""
    return _month_of_day(day_start(at_ms))


# Every hold and charge asks, nearly always for today.
@lru_cache(maxsize=64)
def _month_of_day(day_ms: int) -> int:
    moment = _EPOCH + timedelta(milliseconds=day_ms)
    return (datetime(moment.year, moment.month, 1, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


@dataclass(slots=True)
class Window:
    """What was used in one window."""

    start_ms: int = 0
    requests: int = 0
    tokens: int = 0
    spend_nanos: int = 0

    def roll(self, start_ms: int) -> None:
        """Begin a later window. One that lies ahead, since the clock was stepped back, becomes the current one with all that
        was counted in it: it frees nothing, and it ends with the current one, however far ahead the clock was."""
        if start_ms > self.start_ms:
            self.requests, self.tokens, self.spend_nanos = 0, 0, 0
        self.start_ms = start_ms


@dataclass(slots=True)
class Counters:
    """The three windows of a key or an account."""

    minute: Window = field(default_factory=Window)
    day: Window = field(default_factory=Window)
    month: Window = field(default_factory=Window)

    def roll(self, now_ms: int) -> None:
        """Bring all three to a moment."""
        if self._are_of(now_ms):
            # They are always rolled together, so the others are current as well. Nearly every call ends here.
            return
        for window, start_ms in self._starts(now_ms):
            window.roll(start_ms)

    def at(self, now_ms: int) -> "Counters":
        """As they stand at a moment, for who only looks: nothing changes here."""
        if self._are_of(now_ms):
            return self
        seen = Counters(replace(self.minute), replace(self.day), replace(self.month))
        seen.roll(now_ms)
        return seen

    def count(self, tokens: int, spend_nanos: int) -> None:
        """Add one request to the current windows."""
        for window in (self.minute, self.day, self.month):
            window.requests += 1
            window.tokens += tokens
            window.spend_nanos += spend_nanos

    def correct(self, made_at_ms: int, tokens: int, spend_nanos: int) -> None:
        """Add a difference to those windows in which the request was made, where they are still current."""
        for window, start_ms in self._starts(made_at_ms):
            if window.start_ms == start_ms:
                # What was made while the clock was ahead was counted in another window, even if this one has the name.
                window.tokens = max(window.tokens + tokens, 0)
                window.spend_nanos = max(window.spend_nanos + spend_nanos, 0)

    def _are_of(self, now_ms: int) -> bool:
        return self.minute.start_ms <= now_ms < self.minute.start_ms + MINUTE_MS

    def _starts(self, at_ms: int) -> tuple[tuple[Window, int], ...]:
        day_ms = day_start(at_ms)
        return (self.minute, minute_start(at_ms)), (self.day, day_ms), (self.month, _month_of_day(day_ms))


@dataclass(frozen=True, slots=True)
class Reached:
    """A limit that stands in the way. `retry_after_ms` zero: trying again does not help soon."""

    limit: str
    message: str
    retry_after_ms: int = 0


def judge(
    limits: Limits, counters: Counters, open_holds: int, tokens: int, hold_nanos: int, now_ms: int, whose: str = "key"
) -> Reached | None:
    """The first limit that one more request would exceed, or None. The counters must have been rolled to `now_ms`.

    `whose` is for the sentence: the limits of a "key" or of an "account"."""
    rest_ms = minute_rest_ms(now_ms)
    if over(limits.requests_per_minute, counters.minute.requests + 1):
        return Reached("requests_per_minute", f"the {whose}'s requests per minute are used up", rest_ms)
    if over(limits.tokens_per_minute, tokens):
        return Reached("tokens_per_minute", f"the request alone needs more tokens than the {whose} has in a minute")
    if over(limits.tokens_per_minute, counters.minute.tokens + tokens):
        return Reached("tokens_per_minute", f"the {whose}'s tokens per minute do not suffice for this request", rest_ms)
    if over(limits.concurrency, open_holds + 1):
        return Reached("concurrency", f"the {whose} has as many requests open as it may", CONCURRENCY_RETRY_MS)
    if over(limits.daily_spend_nanos, counters.day.spend_nanos + hold_nanos):
        return Reached("daily_spend", f"the {whose}'s spend for this UTC day does not suffice")
    if over(limits.monthly_spend_nanos, counters.month.spend_nanos + hold_nanos):
        return Reached("monthly_spend", f"the {whose}'s spend for this UTC month does not suffice")
    return None


def tighter(*pairs: tuple[int | None, int]) -> tuple[int, int] | None:
    """Of limits with what is used of each: the one with least left, as (limit, left); None where none is set."""
    left = [(max(limit - used, 0), limit) for limit, used in pairs if limit is not None]
    return min(left)[::-1] if left else None


def shared_models(*limits: Limits) -> tuple[str, ...]:
    """The models that all of the allow-lists allow; empty where none has a list. Lists that have nothing in common allow
    the empty name only, which is no model's."""
    lists = [one.models for one in limits if one.models]
    if not lists:
        return ()
    return tuple(name for name in lists[0] if all(name in each for each in lists)) or ("",)


def over(limit: int | None, value: int) -> bool:
    """Whether a value is beyond a limit that is set."""
    return limit is not None and value > limit


def minute_rest_ms(now_ms: int) -> int:
    """Milliseconds until the UTC minute ends."""
    return MINUTE_MS - now_ms % MINUTE_MS
