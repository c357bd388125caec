"""What the auditor remembers: accounts, keys, prices, holds. Plain records; imports nothing of the product."""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime

from speedinfer.billing.v1 import reservation_pb2 as pb

from tests.ledger.tariff import Counts, Tier

MINUTE_MS, DAY_MS = 60_000, 86_400_000
HELD, SETTLED, RELEASED, EXPIRED, LATE = "HELD", "SETTLED", "RELEASED", "EXPIRED", "LATE"
CHARGED = (SETTLED, LATE)


@dataclass
class Limits:
    """None and an empty tuple: without limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrency: int | None = None
    models: tuple[str, ...] = ()
    expires_at: int | None = None
    daily_spend: int | None = None
    monthly_spend: int | None = None

    def ended(self, now_ms: int) -> bool:
        return self.expires_at is not None and self.expires_at <= now_ms


@dataclass
class Hold:
    """A reservation. `account` is empty where an id was released before it was reserved."""

    id: str
    state: str
    made_ms: int
    account: str = ""
    key: str = ""
    asked: pb.ReserveItem = field(default_factory=pb.ReserveItem)
    hold: int = 0
    output_limit: int | None = None
    version: str = ""
    counted: int = 0
    # Wall-clock end; lease and end in monotonic time.
    hard_end_wall_ms: int = 0
    lease_ms: int = 0
    hard_end_ms: int = 0
    charge: int | None = None
    counts: Counts | None = None
    worker: str = ""
    attempts: int = 0
    ending: int = 0
    balance_after: int = 0

    @property
    def tokens(self) -> int:
        """What it counts in its minute as it stands."""
        if self.counts is not None:
            return self.counts[0] + (self.counts[2] or 0)
        return self.counted if self.state == HELD else 0

    @property
    def spend(self) -> int:
        """What it counts in its day and month as it stands."""
        return self.charge if self.charge is not None else self.hold if self.state == HELD else 0


@dataclass
class Used:
    """All holds of a key's line or of an account: what is used in a window is read from those that were made in it."""

    holds: defaultdict[int, list[Hold]] = field(default_factory=lambda: defaultdict(list))
    open: int = 0

    def add(self, hold: Hold) -> None:
        self.holds[hold.made_ms // MINUTE_MS].append(hold)
        self.open += 1

    def minute(self, now_ms: int) -> tuple[int, int]:
        """Requests and tokens."""
        mine = self.holds.get(now_ms // MINUTE_MS, ())
        return len(mine), sum(hold.tokens for hold in mine)

    def spend(self, since_ms: int) -> int:
        """Of all that were made since then."""
        first = since_ms // MINUTE_MS
        return sum(hold.spend for minute, holds in self.holds.items() if minute >= first for hold in holds)


def day_start(now_ms: int) -> int:
    return now_ms // DAY_MS * DAY_MS


def month_start(now_ms: int) -> int:
    day = datetime.fromtimestamp(now_ms // 1000, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return int(day.timestamp()) * 1000


@dataclass
class Account:
    """Its balance is the sum of its entries."""

    id: str
    limits: Limits
    credit_limit: int = 0
    entries: list[int] = field(default_factory=list)
    balance: int = 0
    held: int = 0
    used: Used = field(default_factory=Used)

    def book(self, nanos: int) -> None:
        self.entries.append(nanos)
        self.balance += nanos

    @property
    def available(self) -> int:
        return self.balance + self.credit_limit - self.held


@dataclass
class Key:
    """`used` is one for the whole line of rotations."""

    id: str
    account: str
    limits: Limits
    used: Used
    revoked: bool = False
    successor: str = ""

    def good(self, now_ms: int) -> bool:
        return not self.revoked and not self.limits.ended(now_ms)


@dataclass
class Version:
    """A price version."""

    id: str
    model: str
    account: str
    from_ms: int
    tiers: tuple[Tier, ...]
    bounds: dict[str, int | None]
