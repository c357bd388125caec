"""Seals and what they are made of, in SQLite. Only the SQLite store imports it.

Entries have numbers in the order in which they were committed, since one process writes them one after another: what a seal
has not covered are the entries after the last number that it covered.
"""

# Statements are put together from constants of ours only; values always go in as parameters.
# ruff: noqa: S608

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence

from services.billing import chain
from services.billing.seal import Head, Seal, Unsealed
from services.billing.store import rows

SEAL = "number, sealed_at_ms, last_entry, prices, statement, signature, key_id"
# How many seals are read at once.
PAGE = 16


def chain_start(connection: sqlite3.Connection) -> int:
    """Entries with greater numbers are chained."""
    # Of several, which only somebody else can have written, none is believed.
    found = connection.execute("SELECT entry_number FROM chain_start").fetchall()
    return int(found[0][0]) if len(found) == 1 else -1


def seals(connection: sqlite3.Connection, after: int, at_most: int) -> list[Seal]:
    """Seals with numbers greater than `after`, in order."""
    statement = f"SELECT {SEAL} FROM seal WHERE number > ? ORDER BY number LIMIT ?"
    return [Seal(*row) for row in connection.execute(statement, (after, at_most))]


def all_seals(connection: sqlite3.Connection) -> Iterator[Seal]:
    """All of them, in order, a page at a time."""
    # Numbers below 1 are nobody's; they are read to be found wrong.
    after = -(2**63)
    while page := seals(connection, after, PAGE):
        yield from page
        after = page[-1].number


def unsealed(connection: sqlite3.Connection, at_most: int) -> Unsealed:
    """See Reader."""
    connection.execute("BEGIN")
    try:
        row = connection.execute(f"SELECT {SEAL} FROM seal ORDER BY number DESC LIMIT 1").fetchone()
        last = None if row is None else Seal(*row)
        last_entry, prices = (last.last_entry, last.prices) if last else (0, 0)
        # With max() the other columns are those of the row that has it.
        changed = connection.execute(
            "SELECT account_id, account_seq, balance_after_nanos, chain, max(number) FROM entry "
            "WHERE number > ? AND account_seq IS NOT NULL GROUP BY account_id ORDER BY max(number) LIMIT ?",
            (last_entry, at_most),
        ).fetchall()
        versions = connection.execute(
            f"SELECT {rows.PRICE} FROM price_version ORDER BY number LIMIT -1 OFFSET ?", (prices,)
        ).fetchall()
        return Unsealed(
            last,
            chain_start(connection),
            [Head(row[0], row[1], chain.after(row[0], row[1], row[2], row[3])) for row in changed],
            changed[-1][4] if changed else last_entry,
            [rows.price(row) for row in versions],
        )
    finally:
        connection.execute("ROLLBACK")


def chains_at(connection: sqlite3.Connection, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], bytes]:
    """See Book."""
    # Driven by the places: one search of the index for each.
    statement = (
        "SELECT entry.account_id, entry.account_seq, entry.balance_after_nanos, entry.chain FROM json_each(?) AS place "
        "CROSS JOIN entry ON entry.account_id = place.value ->> 0 AND entry.account_seq = place.value ->> 1"
    )
    found = connection.execute(statement, (json.dumps(list(places)),))
    return {(row[0], row[1]): chain.after(row[0], row[1], row[2], row[3]) for row in found}


def insert(connection: sqlite3.Connection, new: Iterable[Seal]) -> None:
    """Store seals."""
    connection.executemany(
        f"INSERT INTO seal ({SEAL}) VALUES ({rows.marks(SEAL)})",
        [
            (one.number, one.sealed_at_ms, one.last_entry, one.prices, one.statement, one.signature, one.key_id)
            for one in new
        ],
    )
