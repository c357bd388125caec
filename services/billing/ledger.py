"""Double entry: transactions whose legs sum to zero. Pure; anything in billing may import it.

An account's balance is the sum of its legs and nothing else. Two accounts are the house's own: `house_outside`, where money
comes from, and `house_revenue`, where charges go; their balances are kept nowhere but in their legs, so that no row is
touched by every charge. Nothing stored is ever changed: a correction is a transaction of its own.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from services.billing.limits import NO_LIMITS, Counters, Limits
from services.billing.usage import Counts

OUTSIDE = "house_outside"
REVENUE = "house_revenue"
HOUSE = (OUTSIDE, REVENUE)
# A balance is kept in a signed 64-bit integer.
MAX_NANOS = 2**63 - 1


class Kind(IntEnum):
    """What a transaction is. Values are those of EntryKind, and of the store."""

    CREDIT = 1
    CHARGE = 2
    LATE_CHARGE = 3
    REFUND = 4
    ADJUSTMENT = 5
    EXPIRY = 6

    @property
    def is_charge(self) -> bool:
        """Whether it takes money for a request."""
        return self in (Kind.CHARGE, Kind.LATE_CHARGE)


class Leg(NamedTuple):
    """One side of a transaction. What comes in is positive."""

    account_id: str
    amount_nanos: int


class Charge(NamedTuple):
    """What a charge was made of, complete in itself: it stays when the reservation is forgotten."""

    reservation_id: str
    account_id: str
    key_id: str
    model: str
    operation: int
    price_version: str
    usage: Counts
    worker_id: str
    attempts: int
    ending: int
    hold_nanos: int
    amount_nanos: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """Legs that are booked together. The first leg is the customer's."""

    kind: Kind
    legs: tuple[Leg, ...]
    # The request that is charged or corrected, or empty.
    request_id: str = ""
    # The operator's mutation that it comes from, or empty.
    operation_id: str = ""
    note: str = ""
    charge: Charge | None = None

    def __post_init__(self) -> None:
        assert len(self.legs) >= 2, "a transaction has two sides"
        assert sum([leg.amount_nanos for leg in self.legs]) == 0, "legs must sum to zero"


@dataclass(slots=True)
class Account:
    """Who pays. The three figures are projections: `balance` of the entries, `held` and `open_holds` of open reservations."""

    account_id: str
    name: str
    created_at_ms: int
    balance_nanos: int = 0
    held_nanos: int = 0
    open_holds: int = 0
    # How many legs it has; each knows its number, so that none can vanish unseen.
    entries: int = 0
    closed_at_ms: int | None = None
    # What all of its keys may do together.
    limits: Limits = NO_LIMITS
    # How far below zero holds may take the balance; 0: prepaid.
    credit_limit_nanos: int = 0
    # Counted without a limit too, so that one that is set later knows what was used before.
    counters: Counters = field(default_factory=Counters)
    # The hash chain after its last entry; None where none is chained yet.
    chain_head: bytes | None = None

    @property
    def credit_nanos(self) -> int:
        """What open holds and a new one may come to; negative after an overrun or a late charge."""
        return min(self.balance_nanos + self.credit_limit_nanos, MAX_NANOS)

    @property
    def available_nanos(self) -> int:
        """What a new hold may take."""
        return self.credit_nanos - self.held_nanos


def charge(kind: Kind, facts: Charge) -> Transaction:
    """A charge, of zero too: from the customer to revenue."""
    legs = (Leg(facts.account_id, -facts.amount_nanos), Leg(REVENUE, facts.amount_nanos))
    return Transaction(kind, legs, request_id=facts.reservation_id, charge=facts)


def transfer(
    kind: Kind, account_id: str, amount_nanos: int, *, operation_id: str, note: str = "", request_id: str = ""
) -> Transaction:
    """Money between the outside and a customer: in where the amount is positive, out where it is negative."""
    legs = (Leg(account_id, amount_nanos), Leg(OUTSIDE, -amount_nanos))
    return Transaction(kind, legs, request_id=request_id, operation_id=operation_id, note=note)


def fits(balance_nanos: int, amount_nanos: int) -> bool:
    """Whether the balance can still be kept after an amount is added."""
    return abs(balance_nanos + amount_nanos) <= MAX_NANOS
