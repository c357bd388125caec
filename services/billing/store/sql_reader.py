"""Reading beside the writer, in the SQL that all stores understand. The stores' own readers are built on it.

Statements are written with `?` for a value and `IN (?*)` for a list of them; a store says what that is in its own words. Sums
of amounts are taken in Python: SQL's would overflow where an integer of ours does not.
"""

# Statements are put together from constants of ours only; values always go in as parameters.
# ruff: noqa: S608

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from services.billing import chain
from services.billing.audit import AuditEntry, AuditTransaction, Book
from services.billing.key import Key
from services.billing.ledger import Account, Kind
from services.billing.price import PriceVersion
from services.billing.reservation import Reservation, State
from services.billing.seal import Seal, Unsealed
from services.billing.store import rows, sql_seals
from services.billing.store.port import EntryRow, ModelSum

_CHARGE = rows.prefixed("charge", rows.CHARGE)
_RESERVATION = rows.prefixed("reservation", rows.RESERVATION)


# Takes a statement and its values, streams the rows, all in one snapshot.
Stream = Callable[..., Iterable[Any]]


class SqlReader(ABC):
    """See Reader. Subclasses run statements."""

    @abstractmethod
    def _all(self, statement: str, *values: Any) -> list[Any]:
        """All rows."""

    @abstractmethod
    def _snapshot(self) -> AbstractContextManager[Stream]:
        """One moment, for as many statements as are wanted."""

    @abstractmethod
    def _before_sealing(self) -> AbstractContextManager[Stream]:
        """One moment, before which nothing is missing that is committed later under a lower number."""

    @abstractmethod
    def _entries_at(self, stream: Stream, places: Sequence[tuple[str, int]]) -> Iterable[Any]:
        """(account, number within it, balance after it, chain) of entries that exist, by account and number within it."""

    def keys(self, key_ids: Sequence[str]) -> dict[str, Key]:
        """See Reader."""
        statement = f"SELECT {rows.KEY} FROM api_key WHERE key_id IN (?*)"
        return {row[0]: rows.key(row) for row in self._all(statement, list(key_ids))}

    def account(self, account_id: str) -> Account | None:
        """See Reader."""
        statement = f"SELECT {rows.ACCOUNT} FROM account WHERE account_id = ? AND kind = 'customer'"
        return next(map(rows.account, self._all(statement, account_id)), None)

    def accounts_of(self, account_ids: Sequence[str]) -> dict[str, Account]:
        """See Reader."""
        statement = f"SELECT {rows.ACCOUNT} FROM account WHERE account_id IN (?*) AND kind = 'customer'"
        return {row[0]: rows.account(row) for row in self._all(statement, list(account_ids))}

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
        conditions: list[str] = ["TRUE"]
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
        wanted = [int(state) for state in states or State]
        statement = (
            f"SELECT {rows.RESERVATION} FROM reservation WHERE {account} AND reservation_id < ? "
            "AND state IN (?*) ORDER BY reservation_id DESC LIMIT ?"
        )
        # '~' sorts after every character of an id.
        return [rows.reservation(row) for row in self._all(statement, account_id, before or "~", wanted, at_most)]

    def usage(self, account_id: str, since_ms: int, until_ms: int) -> list[ModelSum]:
        """See Reader."""
        statement = (
            "SELECT model, prompt_tokens, coalesce(cached_prompt_tokens, 0), coalesce(completion_tokens, 0), amount_nanos "
            "FROM charge WHERE account_id = ? AND booked_at_ms >= ? AND booked_at_ms < ?"
        )
        sums: dict[str, list[int]] = {}
        with self._snapshot() as stream:
            for model, *figures in stream(statement, account_id, since_ms, until_ms):
                total = sums.setdefault(model, [0] * 5)
                for place, figure in enumerate((1, *figures)):
                    total[place] += figure
        return [ModelSum(model, *total) for model, total in sorted(sums.items())]

    def seals(self, after: int, at_most: int) -> list[Seal]:
        """See Reader."""
        return sql_seals.seals(self._all, after, at_most)

    def unsealed(self, at_most: int) -> Unsealed:
        """See Reader."""
        with self._before_sealing() if at_most else self._snapshot() as stream:
            return sql_seals.unsealed(stream, at_most)

    @contextmanager
    def book(self) -> Iterator[Book]:
        """See Reader."""
        with self._snapshot() as stream:
            yield Book(
                accounts=map(rows.account, stream(f"SELECT {rows.ACCOUNT} FROM account WHERE kind = 'customer'")),
                prices=map(rows.price, stream(f"SELECT {rows.PRICE} FROM price_version ORDER BY number")),
                transactions=(
                    AuditTransaction(row[0], Kind(row[1]), row[2], row[3], row[4], row[5], rows.charge(row[7:]), row[6])
                    for row in stream(
                        "SELECT txn.number, txn.kind, txn.booked_at_ms, txn.request_id, txn.operation_id, txn.note, "
                        f"charge.booked_at_ms, {_CHARGE} FROM ledger_transaction AS txn "
                        "LEFT JOIN charge ON charge.transaction_number = txn.number ORDER BY txn.number"
                    )
                ),
                entries=(
                    AuditEntry(*row)
                    for row in stream(
                        "SELECT number, transaction_number, account_id, amount_nanos, account_seq, balance_after_nanos, "
                        "chain FROM entry ORDER BY transaction_number, number"
                    )
                ),
                reservations=(
                    (rows.reservation(row[:25]), None if row[25] is None else Kind(row[25]), rows.charge(row[26:]))
                    for row in stream(
                        f"SELECT {_RESERVATION}, txn.kind, {_CHARGE} FROM reservation "
                        "LEFT JOIN charge ON charge.reservation_id = reservation.reservation_id "
                        "LEFT JOIN ledger_transaction AS txn ON txn.number = charge.transaction_number"
                    )
                ),
                chain_start=sql_seals.chain_start(stream),
                seals=sql_seals.all_seals(stream),
                chains_at=lambda places: {
                    (row[0], row[1]): chain.after(row[0], row[1], row[2], row[3])
                    for row in self._entries_at(stream, places)
                },
            )


def _entry(row: rows.Row) -> EntryRow:
    kind, charge = Kind(row[4]), rows.charge(row[10:])
    return EntryRow(row[0], row[1], row[2], row[3], kind, row[5], row[6], row[7], row[8], row[9], charge)
