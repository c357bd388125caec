"""What a batch changes, as one statement a table over arrays of its columns. Pure; only the PostgreSQL session imports it."""

# Statements are put together from constants of ours only; values always go in as parameters.
# ruff: noqa: S608

from collections.abc import Iterable, Iterator, Sequence

from services.billing.limits import Counters
from services.billing.store import rows, sql_seals
from services.billing.store.port import Changes
from services.billing.store.postgresql_array import Array, array
from services.billing.store.sql_session import PERIODS

Statement = tuple[str, Sequence[Array]]

# Columns that are not numbers.
_WORDS = (
    "account_id, name, key_id, models, replaces_key_id, first_key_id, replaced_by_key_id, version, model, tiers, bounds, "
    "reservation_id, price_version, idempotency_key, worker_id, cause, operation_id, kind, request_id, note, period"
)
_TEXT = frozenset(_WORDS.split(", "))
_BYTES = frozenset(("sha256", "asked", "content", "answer", "chain", "chain_head", "statement", "signature"))

_OPERATION = "operation_id, kind, content, answer, done_at_ms"
_TRANSACTION = "number, kind, booked_at_ms, request_id, operation_id, note"
_ENTRY = "number, transaction_number, account_id, amount_nanos, account_seq, balance_after_nanos, chain"
_COUNTER = "key_id, period, start_ms, requests, tokens, spend_nanos"
_CLOSING = (
    "state, closed_at_ms, charge_nanos, prompt_tokens, cached_prompt_tokens, completion_tokens, worker_id, attempts, "
    "ending, overrun, balance_after_nanos, cause"
)


def statements(changes: Changes) -> Iterator[Statement]:
    """Everything, in an order that is always the same."""
    accounts = [rows.account_row(one) for one in changes.new_accounts.values()]
    yield from _insert("account", rows.ACCOUNT, accounts, more=", 'customer'", into=", kind")
    changed = changes.changed_accounts.values()
    figures = ((*rows.account_figures(one), one.account_id) for one in changed)
    yield from _update("account", rows.ACCOUNT_FIGURES, "account_id", figures)
    limited = changes.limited_accounts.values()
    limits = ((*rows.account_limits(one), one.account_id) for one in limited)
    yield from _update("account", rows.ACCOUNT_LIMITS, "account_id", limits)
    yield from _insert("api_key", rows.KEY, map(rows.key_row, changes.new_keys.values()))
    yield from _update(
        "api_key",
        "revoked_at_ms, expires_at_ms, replaced_by_key_id",
        "key_id",
        (
            (one.revoked_at_ms, one.limits.expires_at_ms, one.replaced_by_key_id, one.key_id)
            for one in changes.changed_keys.values()
        ),
    )
    yield from _insert("price_version", rows.PRICE, map(rows.price_row, changes.prices), in_order=True)
    # Before new ones: what this batch closed frees its idempotency key for what it opens.
    closed = [rows.reservation_row(one) for one in changes.changed_reservations.values()]
    yield from _update("reservation", _CLOSING, "reservation_id", ((row[5], *row[14:25], row[0]) for row in closed))
    if closed:
        yield "DELETE FROM renewal WHERE reservation_id = ANY(%s)", [array(row[0] for row in closed)]
    yield from _insert("reservation", rows.RESERVATION, map(rows.reservation_row, changes.new_reservations.values()))
    yield from _upsert_renewals(changes)
    yield from _upsert_counters(changes.counters)
    yield from _insert(
        "operation",
        _OPERATION,
        ((one.operation_id, one.kind, one.content, one.answer, one.done_at_ms) for one in changes.operations),
    )
    yield from _insert("ledger_transaction", _TRANSACTION, map(rows.transaction_row, changes.transactions))
    yield from _insert("entry", _ENTRY, map(rows.entry_row, changes.entries))
    charges = (rows.charge_row(one, one.charge) for one in changes.transactions if one.charge)
    yield from _insert("charge", f"transaction_number, booked_at_ms, {rows.CHARGE}", charges)
    yield from _insert("seal", sql_seals.SEAL, map(sql_seals.row, changes.seals))


def _insert(
    table: str, columns: str, values: Iterable[rows.Row], *, more: str = "", into: str = "", in_order: bool = False
) -> Iterator[Statement]:
    """Sorted by the first column, which is the table's id, unless the order of making counts."""
    found = list(values) if in_order else sorted(values, key=lambda row: row[0])
    if found:
        taken = _unnest(table, columns)
        yield f"INSERT INTO {table} ({columns}{into}) SELECT {columns}{more} FROM {taken}", _columns(found)


def _update(table: str, columns: str, name: str, values: Iterable[rows.Row]) -> Iterator[Statement]:
    if found := list(values):
        changes = ", ".join(f"{column} = new.{column}" for column in columns.split(", "))
        taken = _unnest(table, f"{columns}, {name}")
        yield f"UPDATE {table} SET {changes} FROM {taken} WHERE {table}.{name} = new.{name}", _columns(found)


def _upsert_counters(counters: dict[str, Counters]) -> Iterator[Statement]:
    values = [
        (key_id, period, window.start_ms, window.requests, window.tokens, window.spend_nanos)
        for key_id, kept in counters.items()
        for period, window in zip(PERIODS, (kept.minute, kept.day, kept.month), strict=True)
    ]
    for statement, columns in _insert("key_counter", _COUNTER, values):
        changes = ", ".join(f"{name} = excluded.{name}" for name in _COUNTER.split(", ")[2:])
        yield f"{statement} ON CONFLICT (key_id, period) DO UPDATE SET {changes}", columns


def _upsert_renewals(changes: Changes) -> Iterator[Statement]:
    for statement, columns in _insert("renewal", "reservation_id, times", ((one, 1) for one in changes.renewed)):
        yield f"{statement} ON CONFLICT (reservation_id) DO UPDATE SET times = renewal.times + 1", columns


def _unnest(table: str, columns: str) -> str:
    arrays = ", ".join(f"%s::{_type(table, name)}[]" for name in columns.split(", "))
    return f"unnest({arrays}) AS new ({columns})"


def _type(table: str, column: str) -> str:
    if column in _BYTES:
        return "bytea"
    # The only word that is text in one table and a number in another.
    number = column not in _TEXT or (table, column) == ("ledger_transaction", "kind")
    return "bigint" if number else "text"


def _columns(values: Sequence[rows.Row]) -> list[Array]:
    return [array(column) for column in zip(*values, strict=True)]
