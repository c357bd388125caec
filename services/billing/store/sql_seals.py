"""Seals and what they are made of, in the SQL that all stores understand; see `sql_reader` for its marks. Only it imports this.

What a seal has not covered are the entries after the last number that it covered, and the price versions after so many. A store
lets nobody ask who could miss what is committed later under a lower number.
"""

# Statements are put together from constants of ours only; values always go in as parameters.
# ruff: noqa: S608

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from services.billing import chain
from services.billing.seal import Head, Seal, Unsealed
from services.billing.store import rows

# Takes a statement and its values, answers its rows.
Ask = Callable[..., Iterable[Any]]

SEAL = "number, sealed_at_ms, last_entry, prices, statement, signature, key_id"
# How many seals are read at once.
PAGE = 16
# More than there will ever be, with room for an offset.
_ALL = 2**62


def chain_start(ask: Ask) -> int:
    """Entries with greater numbers are chained."""
    # Of several, which only somebody else can have written, none is believed.
    found = list(ask("SELECT entry_number FROM chain_start"))
    return int(found[0][0]) if len(found) == 1 else -1


def seals(ask: Ask, after: int, at_most: int) -> list[Seal]:
    """Seals with numbers greater than `after`, in order."""
    return [
        Seal(*row) for row in ask(f"SELECT {SEAL} FROM seal WHERE number > ? ORDER BY number LIMIT ?", after, at_most)
    ]


def all_seals(ask: Ask) -> Iterator[Seal]:
    """All of them, in order, a page at a time."""
    # Numbers below 1 are nobody's; they are read to be found wrong.
    after = -(2**63)
    while page := seals(ask, after, PAGE):
        yield from page
        after = page[-1].number


def unsealed(ask: Ask, at_most: int) -> Unsealed:
    """See Reader. All of it is asked of one moment."""
    found = [Seal(*row) for row in ask(f"SELECT {SEAL} FROM seal ORDER BY number DESC LIMIT 1")]
    last = found[0] if found else None
    last_entry, prices = (last.last_entry, last.prices) if last else (0, 0)
    changed = list(
        ask(
            "SELECT entry.account_id, entry.account_seq, entry.balance_after_nanos, entry.chain, entry.number FROM ("
            "SELECT max(number) AS number FROM entry WHERE number > ? AND account_seq IS NOT NULL GROUP BY account_id "
            "ORDER BY max(number) LIMIT ?) AS newest JOIN entry ON entry.number = newest.number ORDER BY entry.number",
            last_entry,
            at_most,
        )
    )
    versions = ask(f"SELECT {rows.PRICE} FROM price_version ORDER BY number LIMIT ? OFFSET ?", _ALL, prices)
    return Unsealed(
        last,
        chain_start(ask),
        [Head(row[0], row[1], chain.after(row[0], row[1], row[2], row[3])) for row in changed],
        changed[-1][4] if changed else last_entry,
        [rows.price(row) for row in versions],
    )


def row(one: Seal) -> rows.Row:
    """Its columns."""
    return (one.number, one.sealed_at_ms, one.last_entry, one.prices, one.statement, one.signature, one.key_id)
