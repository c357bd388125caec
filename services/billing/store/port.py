"""What billing asks of a database. Stores implement it; the engine, the operations and the servicers use it.

A store does no arithmetic with money and decides nothing: it loads records, locks accounts, and saves what it is given, all
of it or nothing. Questions about many rows are one call, so that a store over a network can answer with one statement.
"""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from services.billing.audit import Book
from services.billing.key import Key
from services.billing.ledger import Account, Charge, Kind
from services.billing.limits import Counters
from services.billing.price import PriceVersion
from services.billing.reservation import Reservation, State
from services.billing.seal import Seal, Unsealed
from services.common.errors import Unavailable


class StoreError(Unavailable):
    """The database did not do it: nothing of the batch stands, or nobody knows; asking again with the same id tells."""


@dataclass(slots=True)
class Names:
    """What a batch names; it is loaded at once."""

    reservations: set[str] = field(default_factory=set)
    operations: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    accounts: set[str] = field(default_factory=set)
    # Idempotency keys, each with the id of the API key that it came with.
    bearers: set[tuple[str, str]] = field(default_factory=set)

    def add(self, other: "Names") -> None:
        """Take in what another one names."""
        self.reservations |= other.reservations
        self.operations |= other.operations
        self.keys |= other.keys
        self.accounts |= other.accounts
        self.bearers |= other.bearers


class Again(StoreError):
    """Another process was in the way: nothing of the batch stands, and it is to be done again, naming these as well."""

    def __init__(self, names: Names) -> None:
        super().__init__("billing's database was changed by another process meanwhile; try again")
        self.names = names


@dataclass(frozen=True, slots=True)
class DoneOperation:
    """An operator's mutation that was done: its content and its answer, both as they were."""

    operation_id: str
    kind: str
    content: bytes
    answer: bytes
    done_at_ms: int


@dataclass(slots=True)
class Loaded:
    """What was found, by id. The accounts are locked until the session ends."""

    reservations: dict[str, Reservation] = field(default_factory=dict)
    operations: dict[str, DoneOperation] = field(default_factory=dict)
    keys: dict[str, Key] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)


class NewTransaction(NamedTuple):
    """A transaction as it is stored."""

    number: int
    kind: Kind
    booked_at_ms: int
    request_id: str
    operation_id: str
    note: str
    charge: Charge | None


@dataclass(slots=True)
class NewEntry:
    """A leg as it is stored. The house's legs have neither a number within the account nor a balance nor a chain."""

    number: int
    transaction: int
    account_id: str
    amount_nanos: int
    account_seq: int | None
    balance_after_nanos: int | None
    # Made last, of all legs of the transaction.
    chain: bytes | None = None


@dataclass(slots=True)
class Changes:
    """Everything that a batch writes."""

    new_accounts: dict[str, Account] = field(default_factory=dict)
    changed_accounts: dict[str, Account] = field(default_factory=dict)
    # Those whose limits an operator changed.
    limited_accounts: dict[str, Account] = field(default_factory=dict)
    new_reservations: dict[str, Reservation] = field(default_factory=dict)
    changed_reservations: dict[str, Reservation] = field(default_factory=dict)
    new_keys: dict[str, Key] = field(default_factory=dict)
    changed_keys: dict[str, Key] = field(default_factory=dict)
    counters: dict[str, Counters] = field(default_factory=dict)
    prices: list[PriceVersion] = field(default_factory=list)
    operations: list[DoneOperation] = field(default_factory=list)
    transactions: list[NewTransaction] = field(default_factory=list)
    entries: list[NewEntry] = field(default_factory=list)
    # Open holds whose renewal the sweeping process must learn of.
    renewed: set[str] = field(default_factory=set)
    seals: list[Seal] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)


class Session(Protocol):
    """One write transaction. Where other processes write too, any call may raise Again."""

    def load(self, names: Names) -> Loaded:
        """Lock the accounts named, those of the keys and of the reservations, in sorted order; then read everything that is
        named, and the keys of the reservations."""

    def bearers(self, account_id: str, idempotency_key: str) -> list[tuple[str, State]]:
        """The held and charged reservations of the account that bear the idempotency key. More than one only by a late
        charge."""

    def price_at(self, model: str, account_id: str, at_ms: int) -> PriceVersion | None:
        """The version in effect at a moment, of exactly that scope (an empty account: for all)."""

    def price_latest(self, model: str, account_id: str) -> PriceVersion | None:
        """The version of exactly that scope that applies last, be it in the future."""

    def price(self, version: str) -> PriceVersion:
        """A version that exists."""

    def counters(self, key_id: str) -> Counters:
        """The counters of the line that the key is the first of; zero where it has none yet."""

    def open_holds(self, key_id: str) -> int:
        """How many holds of the line that the key is the first of are open."""

    def renewals(self, reservation_ids: Iterable[str]) -> dict[str, int]:
        """How often each hold was renewed at processes that do not sweep; those that never were may be left out."""

    def next_transaction(self) -> int:
        """A number for a transaction."""

    def next_entry(self) -> int:
        """A number for an entry."""

    def save(self, changes: Changes) -> None:
        """Write everything. It is durable once the session has ended without an exception."""


@dataclass(frozen=True, slots=True)
class EntryRow:
    """An account's own leg with what is known of its cause."""

    number: int
    transaction: int
    account_id: str
    account_seq: int
    kind: Kind
    amount_nanos: int
    balance_after_nanos: int
    booked_at_ms: int
    request_id: str
    note: str
    charge: Charge | None


@dataclass(frozen=True, slots=True)
class ModelSum:
    """Charges of one model over a window."""

    model: str
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost_nanos: int = 0


class Reader(Protocol):
    """Reading, beside the writer: what it answers was committed. Used by one thread at a time."""

    def keys(self, key_ids: Sequence[str]) -> dict[str, Key]:
        """Keys by id."""

    def account(self, account_id: str) -> Account | None:
        """One customer's account."""

    def accounts_of(self, account_ids: Sequence[str]) -> dict[str, Account]:
        """Customers' accounts by id."""

    def accounts(self, after: str, at_most: int) -> list[Account]:
        """Customers' accounts with ids greater than `after`, in order."""

    def keys_of(self, account_id: str, after: int, at_most: int) -> list[tuple[int, Key]]:
        """Keys of an account (empty: of all) in the order of making, each with its place."""

    def prices(
        self, model: str, in_effect_at_ms: int | None, after: int, at_most: int
    ) -> list[tuple[int, PriceVersion]]:
        """Versions of a model (empty: of all), by model and then newest first, each with its place, from after the place
        `after` (0: the start). Where a moment is given, without those that another had replaced by then."""

    def entries(self, account_id: str, since_ms: int, until_ms: int, after: int, at_most: int) -> list[EntryRow]:
        """An account's own legs booked in [since, until), with numbers greater than `after`, in order."""

    def reservation(self, reservation_id: str) -> Reservation | None:
        """One reservation."""

    def reservations(self, account_id: str, states: Sequence[State], before: str, at_most: int) -> list[Reservation]:
        """Reservations with ids less than `before` (empty: all), newest first."""

    def usage(self, account_id: str, since_ms: int, until_ms: int) -> list[ModelSum]:
        """Charges booked in [since, until) by model, sorted by name."""

    def seals(self, after: int, at_most: int) -> list[Seal]:
        """Seals with numbers greater than `after`, in order."""

    def unsealed(self, at_most: int) -> Unsealed:
        """What no seal covers yet, with at most so many accounts, as of one moment."""

    def book(self) -> AbstractContextManager[Book]:
        """Everything, as of one moment, for the audit."""

    def close(self) -> None:
        """Give the connection back."""


class Store(Protocol):
    """A database. Only one writer of a process uses `session`; any number of threads may have readers."""

    @property
    def shared(self) -> bool:
        """Other processes may write to it as well."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What its readers raise when the database fails them."""

    def session(self) -> AbstractContextManager[Session]:
        """A write transaction: durable when it ends, undone when it ends with an exception. StoreError if it failed."""

    def reconnect(self) -> None:
        """Begin anew after a StoreError. StoreError if that fails too."""

    def open_holds(self) -> Iterable[tuple[str, int, int]]:
        """Ids of open holds with the moments of making and hard end."""

    def may_sweep(self) -> bool:
        """Whether letting holds lapse is up to this process: to one at most of those that share the database, and to that
        one until its connection ends. StoreError if nobody can tell."""

    def reader(self) -> Reader:
        """A reader of its own connection."""

    def close(self) -> None:
        """Close the writer's connection."""
