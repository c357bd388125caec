"""One write transaction on PostgreSQL. Only `store/postgresql.py` imports it.

Accounts are locked in sorted order by a statement of their own, and what hangs on them is read by later ones: under READ
COMMITTED each of those sees what the last holder of the lock left. Rows are written sorted by id, tables always in the same
order, so that two processes that meet at an id wait for one another in one direction only.
"""

# Statements are put together from constants of ours only; values always go in as parameters.
# ruff: noqa: S608

from collections.abc import Iterable, Sequence
from typing import Any

from services.billing.ledger import Account
from services.billing.limits import Counters, Window
from services.billing.price import PriceVersion
from services.billing.store import postgresql_write as write
from services.billing.store import rows
from services.billing.store.port import Again, Changes, Loaded, Names
from services.billing.store.postgresql_connection import Connection, words
from services.billing.store.sql_session import PERIODS, SqlSession

# Customers' accounts of what a batch names.
_CONCERNED = """
    SELECT account_id FROM api_key WHERE key_id = ANY(%(keys)s)
    UNION SELECT account_id FROM reservation WHERE reservation_id = ANY(%(reservations)s) AND account_id IS NOT NULL
    UNION SELECT api_key.account_id FROM reservation JOIN api_key USING (key_id)
          WHERE reservation_id = ANY(%(reservations)s)"""
_LOCK = f"SELECT {rows.ACCOUNT} FROM account WHERE account_id = ANY(%s) AND kind = 'customer' ORDER BY account_id FOR UPDATE"
_NUMBERS = (
    "SELECT (SELECT array_agg(nextval('transaction_number')) FROM generate_series(1, %s)), "
    "(SELECT array_agg(nextval('entry_number')) FROM generate_series(1, %s))"
)
LEGS = 2


class PostgresqlSession(SqlSession):
    """See Session."""

    def __init__(self, connection: Connection, prices: dict[str, PriceVersion]) -> None:
        super().__init__(prices)
        self._connection = connection
        self._accounts: dict[str, Account] = {}
        self._locked: set[str] | None = None
        self._counters: dict[str, Counters] = {}
        # How many postings are to be expected.
        self._named = 0
        self._transactions: list[int] = []
        self._entries: list[int] = []

    def load(self, names: Names) -> Loaded:
        """See Session."""
        self._named += len(names.reservations) + len(names.operations)
        self._lock(self._concerned(names) | names.accounts)
        reservations = self._by_id(
            "reservation", "reservation_id", rows.RESERVATION, names.reservations, rows.reservation
        )
        key_ids = names.keys | {one.key_id for one in reservations.values() if one.key_id}
        keys = self._by_id("api_key", "key_id", rows.KEY, key_ids, rows.key)
        # Made by somebody else since the accounts were looked for.
        self._lock(
            {one.account_id for one in keys.values()}
            | {one.account_id for one in reservations.values() if one.account_id is not None}
        )
        self._load_counters({one.line_id for one in keys.values() if one.limits.counted})
        return Loaded(reservations, self._operations(names.operations), keys, dict(self._accounts))

    def counters(self, key_id: str) -> Counters:
        """See Session."""
        if key_id not in self._counters:
            self._counters[key_id] = super().counters(key_id)
        return self._counters[key_id]

    def renewals(self, reservation_ids: Iterable[str]) -> dict[str, int]:
        """See Session."""
        return self._by_id("renewal", "reservation_id", "reservation_id, times", reservation_ids, lambda row: row[1])

    def next_transaction(self) -> int:
        """See Session."""
        if not self._transactions:
            self._draw()
        return self._transactions.pop()

    def next_entry(self) -> int:
        """See Session."""
        if not self._entries:
            self._draw()
        return self._entries.pop()

    def save(self, changes: Changes) -> None:
        """See Session."""
        with self._connection.pipeline():
            for statement, columns in write.statements(changes):
                self._connection.execute(statement, columns)

    def _all(self, statement: str, *values: Any) -> list[Any]:
        return self._connection.execute(words(statement), values).fetchall()

    def _concerned(self, names: Names) -> set[str]:
        if not names.keys and not names.reservations:
            return set()
        values = {"keys": list(names.keys), "reservations": list(names.reservations)}
        return {row[0] for row in self._connection.execute(_CONCERNED, values)}

    def _lock(self, account_ids: set[str]) -> None:
        """Once a session, all of them; one more later could be waited for by somebody who waits for us."""
        if self._locked is None:
            self._locked = account_ids
            for row in self._connection.execute(_LOCK, (list(account_ids),)) if account_ids else ():
                self._accounts[row[0]] = rows.account(row)
        elif missing := account_ids - self._locked:
            raise Again(Names(accounts=missing))

    def _load_counters(self, key_ids: set[str]) -> None:
        if not (wanted := key_ids - self._counters.keys()):
            return
        statement = (
            "SELECT key_id, period, start_ms, requests, tokens, spend_nanos FROM key_counter WHERE key_id IN (?*)"
        )
        found: dict[str, dict[str, Window]] = {}
        for key_id, period, *figures in self._all(statement, list(wanted)):
            found.setdefault(key_id, {})[period] = Window(*figures)
        for key_id in wanted:
            windows = found.get(key_id, {})
            self._counters[key_id] = Counters(*(windows.get(period) or Window() for period in PERIODS))

    def _draw(self) -> None:
        """Numbers for as many postings as are named, to be taken from the end. Drawn under the locks, so that within an account
        they rise; what was left of an earlier draw is lower and used up first."""
        postings = max(self._named, 1)
        transactions, entries = self._all(_NUMBERS.replace("%s", "?"), postings, LEGS * postings)[0]
        self._transactions = _falling(transactions, self._transactions)
        self._entries = _falling(entries, self._entries)


def _falling(drawn: Sequence[int], left: Sequence[int]) -> list[int]:
    return sorted([*drawn, *left], reverse=True)
