"""The audit: every figure rebuilt from the entries. Pure; anything in billing may import it.

It trusts nothing but the append-only rows: balances, holds, charges and hash chains are computed anew and compared with what
is stored, and what differs is named by its row. The rows themselves are compared with the seals, which whoever writes the
database cannot make. It reads each table once, in order, and keeps one record an account in memory.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from services.billing import chain
from services.billing import price as pricing
from services.billing.ledger import HOUSE, OUTSIDE, REVENUE, Account, Charge, Kind
from services.billing.price import PriceVersion
from services.billing.reservation import Reservation, State
from services.billing.seal import Seal
from services.billing.seal_checks import SealChecks, Verify

MAX_PROBLEMS = 1_000


@dataclass(frozen=True, slots=True)
class AuditTransaction:
    """A transaction's row and its charge, if it has one."""

    number: int
    kind: Kind
    booked_at_ms: int
    request_id: str
    operation_id: str
    note: str
    charge: Charge | None
    # What the charge's own row says of the moment.
    charged_at_ms: int | None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An entry's row."""

    number: int
    transaction: int
    account_id: str
    amount_nanos: int
    account_seq: int | None
    balance_after_nanos: int | None
    chain: bytes | None


@dataclass(frozen=True, slots=True)
class Book:
    """Everything as of one moment. Transactions and entries come in the order of transaction numbers, price versions in the
    order in which they were set, seals by number."""

    accounts: Iterable[Account]
    prices: Iterable[PriceVersion]
    transactions: Iterable[AuditTransaction]
    entries: Iterable[AuditEntry]
    # Each with the charge that names it and the kind of that charge's transaction, or None.
    reservations: Iterable[tuple[Reservation, Kind | None, Charge | None]]
    # Entries with greater numbers are chained.
    chain_start: int
    seals: Iterable[Seal]
    # The chain after each of these entries (account and its number there), where the entry exists.
    chains_at: Callable[[Sequence[tuple[str, int]]], dict[tuple[str, int], bytes]]


@dataclass(slots=True)
class Findings:
    """What does not add up, and how much was looked at."""

    problems: list[str] = field(default_factory=list)
    accounts: int = 0
    transactions: int = 0
    entries: int = 0
    reservations: int = 0
    seals: int = 0

    def add(self, text: str) -> None:
        """Note a problem; beyond a bound they are no longer listed."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(text)

    @property
    def ok(self) -> bool:
        """Everything adds up."""
        return not self.problems


@dataclass(slots=True)
class _Rebuilt:
    balance_nanos: int = 0
    entries: int = 0
    held_nanos: int = 0
    open_holds: int = 0
    chain: bytes | None = None


def audit(book: Book, verify: Verify) -> Findings:
    """Look at everything; `verify` knows the keys that seals may be signed with."""
    findings = Findings()
    versions = list(book.prices)
    prices = {one.version: one for one in versions}
    rebuilt: dict[str, _Rebuilt] = {}
    total = _check_transactions(book, prices, rebuilt, findings)
    if total != 0:
        findings.add(f"all entries together: the sum is {total}, not 0")
    _check_reservations(book, rebuilt, findings)
    for account in book.accounts:
        findings.accounts += 1
        _check_account(account, rebuilt.pop(account.account_id, _Rebuilt()), findings)
    for account_id in rebuilt:
        findings.add(f"account {account_id}: has entries or holds, but no row")
    checks = SealChecks(versions, book.chain_start, book.chains_at, verify)
    for seal in book.seals:
        findings.seals += 1
        for problem in checks.check(seal):
            findings.add(problem)
    return findings


def _check_transactions(
    book: Book, prices: dict[str, PriceVersion], rebuilt: dict[str, _Rebuilt], findings: Findings
) -> int:
    entries = iter(book.entries)
    entry = next(entries, None)
    total = 0
    for transaction in book.transactions:
        findings.transactions += 1
        name = f"transaction txn_{transaction.number}"
        legs: list[AuditEntry] = []
        while entry is not None and entry.transaction <= transaction.number:
            findings.entries += 1
            if entry.transaction < transaction.number:
                findings.add(f"entry ent_{entry.number}: its transaction txn_{entry.transaction} does not exist")
            else:
                legs.append(entry)
            total += entry.amount_nanos
            _check_entry(entry, book.chain_start, rebuilt, findings)
            entry = next(entries, None)
        _check_legs(name, transaction, legs, findings)
        _check_chains(transaction, legs, book.chain_start, rebuilt, findings)
        if transaction.charge is not None:
            _check_charge(transaction, transaction.charge, legs, prices, findings)
        elif transaction.kind.is_charge:
            findings.add(f"{name}: a charge without its record of usage")
    while entry is not None:
        findings.entries += 1
        total += entry.amount_nanos
        findings.add(f"entry ent_{entry.number}: its transaction txn_{entry.transaction} does not exist")
        _check_entry(entry, book.chain_start, rebuilt, findings)
        entry = next(entries, None)
    return total


def _check_entry(entry: AuditEntry, chain_start: int, rebuilt: dict[str, _Rebuilt], findings: Findings) -> None:
    name = f"entry ent_{entry.number} of account {entry.account_id}"
    chained = chain.is_chained(entry) and entry.number > chain_start
    if chained != (entry.chain is not None):
        findings.add(f"{name}: has {'no' if chained else 'a'} chain, {'one' if chained else 'none'} is expected")
    if entry.account_id in HOUSE:
        return
    account = rebuilt.setdefault(entry.account_id, _Rebuilt())
    if chained and account.chain is None:
        account.chain = chain.start(entry.account_id, account.entries, account.balance_nanos)
    account.balance_nanos += entry.amount_nanos
    account.entries += 1
    if entry.account_seq != account.entries:
        findings.add(f"{name}: is number {entry.account_seq} of the account, {account.entries} is expected")
    if entry.balance_after_nanos != account.balance_nanos:
        findings.add(f"{name}: says balance {entry.balance_after_nanos}, the entries say {account.balance_nanos}")


def _check_chains(
    transaction: AuditTransaction,
    legs: list[AuditEntry],
    chain_start: int,
    rebuilt: dict[str, _Rebuilt],
    findings: Findings,
) -> None:
    for leg in legs:
        if not chain.is_chained(leg) or leg.number <= chain_start:
            continue
        account = rebuilt[leg.account_id]
        assert account.chain is not None, "begun with the entry"
        expected = chain.link(account.chain, transaction, legs, leg)
        if leg.chain is not None and leg.chain != expected:
            findings.add(
                f"entry ent_{leg.number} of account {leg.account_id}: its chain is {leg.chain.hex()}, but the entry before it "
                f"and what it and txn_{transaction.number} say make {expected.hex()}"
            )
        # What is stored goes on, so that the row at fault is named and not all that follow.
        account.chain = leg.chain or expected


def _check_legs(name: str, transaction: AuditTransaction, legs: list[AuditEntry], findings: Findings) -> None:
    if len(legs) < 2:
        findings.add(f"{name}: has {len(legs)} legs")
    if not any(chain.is_chained(leg) for leg in legs):
        findings.add(f"{name}: none of its legs is a customer's, so no chain covers it")
    if (total := sum(leg.amount_nanos for leg in legs)) != 0:
        findings.add(f"{name}: its legs sum to {total}, not 0")
    other = REVENUE if transaction.kind.is_charge else OUTSIDE
    for leg in legs:
        if leg.account_id in HOUSE and leg.account_id != other:
            findings.add(f"entry ent_{leg.number}: a {transaction.kind.name.lower()} does not touch {leg.account_id}")


def _check_charge(
    transaction: AuditTransaction,
    charge: Charge,
    legs: list[AuditEntry],
    prices: dict[str, PriceVersion],
    findings: Findings,
) -> None:
    name = f"transaction txn_{transaction.number}"
    if charge.reservation_id != transaction.request_id:
        findings.add(f"{name}: is for request {transaction.request_id}, its charge for {charge.reservation_id}")
    if transaction.charged_at_ms != transaction.booked_at_ms:
        findings.add(f"{name}: was booked at {transaction.booked_at_ms}, its charge says {transaction.charged_at_ms}")
    if not transaction.kind.is_charge:
        findings.add(f"{name}: has a record of usage, but is a {transaction.kind.name.lower()}")
    version = prices.get(charge.price_version)
    if version is None:
        findings.add(f"{name}: its price version {charge.price_version} does not exist")
    elif (rated := pricing.charge_nanos(version.tiers, charge.usage)) != charge.amount_nanos:
        findings.add(f"{name}: charge of {charge.reservation_id} is {charge.amount_nanos}, its usage costs {rated}")
    booked = [leg.amount_nanos for leg in legs if leg.account_id == charge.account_id]
    if booked != [-charge.amount_nanos]:
        findings.add(f"{name}: charge of {charge.reservation_id} is {charge.amount_nanos}, the legs say {booked}")


def _check_reservations(book: Book, rebuilt: dict[str, _Rebuilt], findings: Findings) -> None:
    for reservation, kind, charge in book.reservations:
        findings.reservations += 1
        name = f"reservation {reservation.reservation_id}"
        if reservation.state is State.HELD and reservation.account_id is not None:
            account = rebuilt.setdefault(reservation.account_id, _Rebuilt())
            account.held_nanos += reservation.hold_nanos
            account.open_holds += 1
        expected = {State.SETTLED: Kind.CHARGE, State.LATE: Kind.LATE_CHARGE}.get(reservation.state)
        if kind is not expected:
            findings.add(
                f"{name}: is {reservation.state.name.lower()}, but its charge is "
                f"{'none' if kind is None else kind.name.lower()}"
            )
        elif charge is not None:
            _check_settlement(name, reservation, charge, findings)


def _check_settlement(name: str, reservation: Reservation, charge: Charge, findings: Findings) -> None:
    for field_name, stored, charged in (
        ("account", reservation.account_id, charge.account_id),
        ("amount", reservation.charge_nanos, charge.amount_nanos),
        ("usage", reservation.usage, charge.usage),
        ("price version", reservation.price_version, charge.price_version),
        ("hold", reservation.hold_nanos, charge.hold_nanos),
        ("worker", reservation.worker_id, charge.worker_id),
    ):
        if stored != charged:
            findings.add(f"{name}: its {field_name} is {stored}, that of its charge {charged}")


def _check_account(account: Account, rebuilt: _Rebuilt, findings: Findings) -> None:
    for name in ("balance_nanos", "entries", "held_nanos", "open_holds"):
        stored, computed = getattr(account, name), getattr(rebuilt, name)
        if stored != computed:
            findings.add(f"account {account.account_id}: {name} is {stored}, the rows say {computed}")
    if account.chain_head != rebuilt.chain:
        stored_head, head = _hex(account.chain_head), _hex(rebuilt.chain)
        findings.add(f"account {account.account_id}: chain_head is {stored_head}, that of its last entry is {head}")


def _hex(one: bytes | None) -> str:
    return "absent" if one is None else one.hex()
