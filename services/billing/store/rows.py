"""Records as rows: columns by name and the two conversions of each. SQL stores import it; no statement runs here."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from services.billing.key import Key
from services.billing.ledger import Account, Charge
from services.billing.limits import NO_LIMITS, Counters, Limits, Window
from services.billing.price import Bounds, PriceVersion, Tier
from services.billing.reservation import Reservation, State
from services.billing.store.port import NewEntry, NewTransaction
from services.billing.usage import Counts

Row = Sequence[Any]

ACCOUNT = (
    "account_id, name, created_at_ms, balance_nanos, held_nanos, open_holds, entries, closed_at_ms, requests_per_minute, "
    "tokens_per_minute, concurrency, models, expires_at_ms, daily_spend_nanos, monthly_spend_nanos, credit_limit_nanos, "
    "minute_start_ms, minute_requests, minute_tokens, day_start_ms, day_spend_nanos, month_start_ms, month_spend_nanos, "
    "chain_head"
)
# What holds and charges change, and what operators do.
ACCOUNT_FIGURES = (
    "balance_nanos, held_nanos, open_holds, entries, closed_at_ms, minute_start_ms, minute_requests, minute_tokens, "
    "day_start_ms, day_spend_nanos, month_start_ms, month_spend_nanos, chain_head"
)
ACCOUNT_LIMITS = (
    "requests_per_minute, tokens_per_minute, concurrency, models, expires_at_ms, daily_spend_nanos, monthly_spend_nanos, "
    "credit_limit_nanos"
)
_NO_LIMITS = (None, None, None, "[]", None, None, None)
KEY = (
    "key_id, account_id, name, sha256, requests_per_minute, tokens_per_minute, concurrency, models, expires_at_ms, "
    "daily_spend_nanos, monthly_spend_nanos, created_at_ms, revoked_at_ms, replaces_key_id, first_key_id, replaced_by_key_id"
)
PRICE = "version, model, account_id, effective_from_ms, created_at_ms, tiers, bounds"
RESERVATION = (
    "reservation_id, account_id, key_id, model, operation, state, hold_nanos, output_limit, price_version, limit_tokens, "
    "idempotency_key, asked, created_at_ms, hard_end_ms, closed_at_ms, charge_nanos, prompt_tokens, cached_prompt_tokens, "
    "completion_tokens, worker_id, attempts, ending, overrun, balance_after_nanos, cause"
)
CHARGE = (
    "reservation_id, account_id, key_id, model, operation, price_version, prompt_tokens, cached_prompt_tokens, "
    "completion_tokens, worker_id, attempts, ending, hold_nanos, amount_nanos"
)


def assignments(columns: str) -> str:
    """A question mark for each column of an UPDATE."""
    return ", ".join(f"{name.strip()} = ?" for name in columns.split(","))


def marks(columns: str) -> str:
    """As many question marks as columns."""
    return ", ".join("?" for _ in columns.split(","))


def prefixed(table: str, columns: str) -> str:
    """Columns of a table in a join."""
    return ", ".join(f"{table}.{name.strip()}" for name in columns.split(","))


def account(row: Row) -> Account:
    """An account."""
    counters = Counters(
        minute=Window(row[16], requests=row[17], tokens=row[18]),
        day=Window(row[19], spend_nanos=row[20]),
        month=Window(row[21], spend_nanos=row[22]),
    )
    limits = NO_LIMITS
    if row[8:15] != _NO_LIMITS:
        limits = Limits(row[8], row[9], row[10], tuple(json.loads(row[11])), *row[12:15])
    return Account(
        account_id=row[0],
        name=row[1],
        created_at_ms=row[2],
        balance_nanos=row[3],
        held_nanos=row[4],
        open_holds=row[5],
        entries=row[6],
        closed_at_ms=row[7],
        limits=limits,
        credit_limit_nanos=row[15],
        counters=counters,
        chain_head=row[23],
    )


def account_row(one: Account) -> Row:
    """Its columns."""
    figures = account_figures(one)
    head = (one.account_id, one.name, one.created_at_ms)
    return (*head, *figures[:5], *account_limits(one), *figures[5:])


def account_figures(one: Account) -> Row:
    """Its projections, and of its counters those that limits are compared with."""
    minute, day, month = one.counters.minute, one.counters.day, one.counters.month
    return (
        one.balance_nanos,
        one.held_nanos,
        one.open_holds,
        one.entries,
        one.closed_at_ms,
        minute.start_ms,
        minute.requests,
        minute.tokens,
        day.start_ms,
        day.spend_nanos,
        month.start_ms,
        month.spend_nanos,
        one.chain_head,
    )


def account_limits(one: Account) -> Row:
    """What it may do."""
    limits = one.limits
    return (
        limits.requests_per_minute,
        limits.tokens_per_minute,
        limits.concurrency,
        json.dumps(limits.models),
        limits.expires_at_ms,
        limits.daily_spend_nanos,
        limits.monthly_spend_nanos,
        one.credit_limit_nanos,
    )


def key(row: Row) -> Key:
    """A key."""
    limits = NO_LIMITS
    if row[4:11] != _NO_LIMITS:
        limits = Limits(row[4], row[5], row[6], tuple(json.loads(row[7])), *row[8:11])
    return Key(row[0], row[1], row[2], row[3], limits, *row[11:16])


def key_row(one: Key) -> Row:
    """Its columns."""
    limits = one.limits
    return (
        one.key_id,
        one.account_id,
        one.name,
        one.sha256,
        limits.requests_per_minute,
        limits.tokens_per_minute,
        limits.concurrency,
        json.dumps(limits.models),
        limits.expires_at_ms,
        limits.daily_spend_nanos,
        limits.monthly_spend_nanos,
        one.created_at_ms,
        one.revoked_at_ms,
        one.replaces_key_id,
        one.line_id,
        one.replaced_by_key_id,
    )


def price(row: Row) -> PriceVersion:
    """A price version."""
    tiers = tuple(Tier(**tier) for tier in json.loads(row[5]))
    return PriceVersion(row[0], row[1], row[2], row[3], row[4], tiers, Bounds(**json.loads(row[6])))


def price_row(one: PriceVersion) -> Row:
    """Its columns."""
    return (
        one.version,
        one.model,
        one.account_id,
        one.effective_from_ms,
        one.created_at_ms,
        json.dumps([asdict(tier) for tier in one.tiers]),
        json.dumps(asdict(one.bounds)),
    )


def reservation(row: Row) -> Reservation:
    """A reservation."""
    usage = None if row[16] is None else Counts(row[16], row[17], row[18])
    return Reservation(
        reservation_id=row[0],
        account_id=row[1],
        key_id=row[2],
        model=row[3],
        operation=row[4],
        state=State(row[5]),
        hold_nanos=row[6],
        output_limit=row[7],
        price_version=row[8],
        limit_tokens=row[9],
        idempotency_key=row[10],
        asked=row[11],
        created_at_ms=row[12],
        hard_end_ms=row[13],
        closed_at_ms=row[14],
        charge_nanos=row[15],
        usage=usage,
        worker_id=row[19],
        attempts=row[20],
        ending=row[21],
        overrun=bool(row[22]),
        balance_after_nanos=row[23],
        cause=row[24],
    )


def reservation_row(one: Reservation) -> Row:
    """Its columns."""
    usage = one.usage
    return (
        one.reservation_id,
        one.account_id,
        one.key_id,
        one.model,
        one.operation,
        int(one.state),
        one.hold_nanos,
        one.output_limit,
        one.price_version,
        one.limit_tokens,
        one.idempotency_key,
        one.asked,
        one.created_at_ms,
        one.hard_end_ms,
        one.closed_at_ms,
        one.charge_nanos,
        usage.prompt if usage else None,
        usage.cached if usage else None,
        usage.completion if usage else None,
        one.worker_id,
        one.attempts,
        one.ending,
        int(one.overrun),
        one.balance_after_nanos,
        one.cause,
    )


def charge(row: Row) -> Charge | None:
    """A charge, or None where an outer join found none."""
    if row[0] is None:
        return None
    usage = Counts(row[6], row[7], row[8])
    return Charge(row[0], row[1], row[2], row[3], row[4], row[5], usage, row[9], row[10], row[11], row[12], row[13])


def transaction_row(one: NewTransaction) -> Row:
    """Its columns, in the table's order. What it was made of has a table of its own."""
    return (one.number, int(one.kind), one.booked_at_ms, one.request_id, one.operation_id, one.note)


def entry_row(one: NewEntry) -> Row:
    """Its columns, in the table's order."""
    return (
        one.number,
        one.transaction,
        one.account_id,
        one.amount_nanos,
        one.account_seq,
        one.balance_after_nanos,
        one.chain,
    )


def charge_row(transaction: NewTransaction, one: Charge) -> Row:
    """Its columns, after the transaction's number and moment."""
    return (
        transaction.number,
        transaction.booked_at_ms,
        one.reservation_id,
        one.account_id,
        one.key_id,
        one.model,
        one.operation,
        one.price_version,
        one.usage.prompt,
        one.usage.cached,
        one.usage.completion,
        one.worker_id,
        one.attempts,
        one.ending,
        one.hold_nanos,
        one.amount_nanos,
    )
