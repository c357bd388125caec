"""Reading from the SQLite store beside its writer, in snapshots that WAL gives. Only `store/sqlite.py` imports it.

Sums of amounts are taken in Python: SQL's would overflow where an integer of ours does not.
"""

# Statements are put together from constants of ours only; values always go in as parameters.
# ruff: noqa: S608

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from services.billing.audit import AuditEntry, AuditTransaction, Book
from services.billing.key import Key
from services.billing.ledger import Account, Kind
from services.billing.price import PriceVersion
from services.billing.reservation import Reservation, State
from services.billing.seal import Seal, Unsealed
from services.billing.store import rows, sqlite_seals
from services.billing.store.port import EntryRow, ModelSum

_CHARGE = rows.prefixed("charge", rows.CHARGE)
_RESERVATION = rows.prefixed("reservation", rows.RESERVATION)


class SqliteReader:
    """See Reader."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def keys(self, key_ids: Sequence[str]) -> dict[str, Key]:
        """See Reader."""
        statement = f"SELECT {rows.KEY} FROM api_key WHERE key_id IN (SELECT value FROM json_each(?))"
        return {row[0]: rows.key(row) for row in self._all(statement, json.dumps(list(key_ids)))}

    def account(self, account_id: str) -> Account | None:
        """See Reader."""
        statement = f"SELECT {rows.ACCOUNT} FROM account WHERE account_id = ? AND kind = 'customer'"
        return next(map(rows.account, self._all(statement, account_id)), None)

    def accounts_of(self, account_ids: Sequence[str]) -> dict[str, Account]:
        """See Reader."""
        statement = (
            f"SELECT {rows.ACCOUNT} FROM account WHERE account_id IN (SELECT value FROM json_each(?)) "
            "AND kind = 'customer'"
        )
        return {row[0]: rows.account(row) for row in self._all(statement, json.dumps(list(account_ids)))}

    def accounts(self, after: str, at_most: int) -> list[Account]:
        """See Reader."""
        statement = (
            f"SELECT {rows.ACCOUNT} FROM account WHERE account_id > ? AND kind = 'customer' ORDER BY account_id LIMIT ?"
        )
        return [rows.account(row) for row in self._all(statement, after, at_most)]

    def keys_of(self, account_id: str, after: int, at_most: int) -> list[tuple[int, Key]]:
        """See Reader."""
        condition = "account_id = ?" if account_id else "'' = ?"
        statement = f"SELECT {rows.KEY}, number FROM api_key WHERE {condition} AND number > ? ORDER BY number LIMIT ?"
        return [(row[-1], rows.key(row[:-1])) for row in self._all(statement, account_id, after, at_most)]

    def prices(
        self, model: str, in_effect_at_ms: int | None, after: int, at_most: int
    ) -> list[tuple[int, PriceVersion]]:
        """See Reader."""
        conditions: list[str] = ["1"]
        values: list[Any] = []
        if model:
            conditions.append("this.model = ?")
            values.append(model)
        if in_effect_at_ms is not None:
            conditions.append(
                "NOT EXISTS (SELECT 1 FROM price_version AS later WHERE later.model = this.model "
                "AND later.account_id = this.account_id AND later.effective_from_ms <= ? "
                "AND (later.effective_from_ms, later.number) > (this.effective_from_ms, this.number))"
            )
            values.append(in_effect_at_ms)
        if after:
            conditions.append(
                "(this.model, -this.effective_from_ms, -this.number) > "
                "(SELECT model, -effective_from_ms, -number FROM price_version WHERE number = ?)"
            )
            values.append(after)
        statement = (
            f"SELECT {rows.PRICE}, number FROM price_version AS this WHERE {' AND '.join(conditions)} "
            "ORDER BY model, effective_from_ms DESC, number DESC LIMIT ?"
        )
        return [(row[-1], rows.price(row[:-1])) for row in self._all(statement, *values, at_most)]

    def entries(self, account_id: str, since_ms: int, until_ms: int, after: int, at_most: int) -> list[EntryRow]:
        """See Reader."""
        statement = f"""
            SELECT entry.number, entry.transaction_number, entry.account_id, entry.account_seq, txn.kind,
                   entry.amount_nanos, entry.balance_after_nanos, txn.booked_at_ms, txn.request_id, txn.note, {_CHARGE}
            FROM entry
            JOIN ledger_transaction AS txn ON txn.number = entry.transaction_number
            LEFT JOIN charge ON charge.transaction_number = txn.number
            WHERE entry.account_id = ? AND entry.account_seq > ? AND txn.booked_at_ms >= ? AND txn.booked_at_ms < ?
            ORDER BY entry.account_seq LIMIT ?"""
        found = self._all(statement, account_id, after, since_ms, until_ms, at_most)
        return [_entry(row) for row in found]

    def reservation(self, reservation_id: str) -> Reservation | None:
        """See Reader."""
        statement = f"SELECT {rows.RESERVATION} FROM reservation WHERE reservation_id = ?"
        return next(map(rows.reservation, self._all(statement, reservation_id)), None)

    def reservations(self, account_id: str, states: Sequence[State], before: str, at_most: int) -> list[Reservation]:
        """See Reader."""
        account = "account_id = ?" if account_id else "account_id IS NOT NULL AND '' = ?"
        wanted = json.dumps([int(state) for state in states or State])
        statement = (
            f"SELECT {rows.RESERVATION} FROM reservation WHERE {account} AND reservation_id < ? "
            "AND state IN (SELECT value FROM json_each(?)) ORDER BY reservation_id DESC LIMIT ?"
        )
        # '~' sorts after every character of an id.
        return [rows.reservation(row) for row in self._all(statement, account_id, before or "~", wanted, at_most)]

    def usage(self, account_id: str, since_ms: int, until_ms: int) -> list[ModelSum]:
        """See Reader."""
        statement = (
            "SELECT model, prompt_tokens, ifnull(cached_prompt_tokens, 0), ifnull(completion_tokens, 0), amount_nanos "
            "FROM charge WHERE account_id = ? AND booked_at_ms >= ? AND booked_at_ms < ?"
        )
        sums: dict[str, list[int]] = {}
        for model, *figures in self._connection.execute(statement, (account_id, since_ms, until_ms)):
            total = sums.setdefault(model, [0] * 5)
            for place, figure in enumerate((1, *figures)):
                total[place] += figure
        return [ModelSum(model, *total) for model, total in sorted(sums.items())]

    def seals(self, after: int, at_most: int) -> list[Seal]:
        """See Reader."""
        return sqlite_seals.seals(self._connection, after, at_most)

    def unsealed(self, at_most: int) -> Unsealed:
        """See Reader."""
        return sqlite_seals.unsealed(self._connection, at_most)

    @contextmanager
    def book(self) -> Iterator[Book]:
        """See Reader."""
        run = self._connection.cursor
        self._connection.execute("BEGIN")
        try:
            yield Book(
                accounts=map(rows.account, self._all(f"SELECT {rows.ACCOUNT} FROM account WHERE kind = 'customer'")),
                prices=map(rows.price, self._all(f"SELECT {rows.PRICE} FROM price_version ORDER BY number")),
                transactions=(
                    AuditTransaction(row[0], Kind(row[1]), row[2], row[3], row[4], row[5], rows.charge(row[7:]), row[6])
                    for row in run().execute(
                        "SELECT txn.number, txn.kind, txn.booked_at_ms, txn.request_id, txn.operation_id, txn.note, "
                        f"charge.booked_at_ms, {_CHARGE} FROM ledger_transaction AS txn "
                        "LEFT JOIN charge ON charge.transaction_number = txn.number ORDER BY txn.number"
                    )
                ),
                entries=(
                    AuditEntry(*row)
                    for row in run().execute(
                        "SELECT number, transaction_number, account_id, amount_nanos, account_seq, balance_after_nanos, "
                        "chain FROM entry ORDER BY transaction_number, number"
                    )
                ),
                reservations=(
                    (rows.reservation(row[:25]), None if row[25] is None else Kind(row[25]), rows.charge(row[26:]))
                    for row in run().execute(
                        f"SELECT {_RESERVATION}, txn.kind, {_CHARGE} FROM reservation "
                        "LEFT JOIN charge ON charge.reservation_id = reservation.reservation_id "
                        "LEFT JOIN ledger_transaction AS txn ON txn.number = charge.transaction_number"
                    )
                ),
                chain_start=sqlite_seals.chain_start(self._connection),
                seals=sqlite_seals.all_seals(self._connection),
                chains_at=lambda places: sqlite_seals.chains_at(self._connection, places),
            )
        finally:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """See Reader."""
        self._connection.close()

    def _all(self, statement: str, *values: Any) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()


def _entry(row: rows.Row) -> EntryRow:
    kind, charge = Kind(row[4]), rows.charge(row[10:])
    return EntryRow(row[0], row[1], row[2], row[3], kind, row[5], row[6], row[7], row[8], row[9], charge)
