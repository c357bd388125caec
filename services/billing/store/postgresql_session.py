"""One write transaction on PostgreSQL. Only `store/postgresql.py` imports it.

Accounts are locked in sorted order by a statement of their own, and what hangs on them is read by later ones: under READ
COMMITTED each of those sees what the last holder of the lock left. Rows are written sorted by id, tables always in the same
order, so that two processes that meet at an id wait for one another in one direction only.
"""

# Statements are put together from constants of ours only; values always go in as parameters.
# ruff: noqa: S608

from collections.abc import Iterable, Sequence
from typing import Any

from services.billing.content import storable
from services.billing.ledger import Account
from services.billing.limits import Counters, Window
from services.billing.price import PriceVersion
from services.billing.reservation import State
from services.billing.store import postgresql_write as write
from services.billing.store import rows
from services.billing.store.port import Again, Changes, Loaded, Names
from services.billing.store.postgresql_array import array
from services.billing.store.postgresql_connection import NUMBERS_LOCK, Connection, run
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
_SHARE_NUMBERS = f"SELECT pg_advisory_xact_lock_shared({NUMBERS_LOCK})"
_IN_EFFECT = """
    SELECT scope.account_id, price.version FROM unnest(?::text[]) AS scope (account_id) CROSS JOIN LATERAL (
        SELECT version FROM price_version
        WHERE model = ? AND price_version.account_id = scope.account_id AND effective_from_ms <= ?
        ORDER BY effective_from_ms DESC, number DESC LIMIT 1
    ) AS price"""
_OPEN_HOLDS = (
    "SELECT first_key_id, count(*) FROM reservation JOIN api_key USING (key_id) "
    "WHERE state = 1 AND first_key_id IN (?*) GROUP BY first_key_id"
)
# Twice, because each of the two partial indexes serves one of them.
_BEARERS = " UNION ALL ".join(
    "SELECT account_id, idempotency_key, reservation_id, state FROM reservation "
    "JOIN unnest(?::text[], ?::text[]) AS asked (account_id, idempotency_key) USING (account_id, idempotency_key) "
    f"WHERE idempotency_key <> '' AND {condition}"
    for condition in ("state IN (1, 2)", "state = 5")
)
LEGS = 2


class PostgresqlSession(SqlSession):
    """See Session."""

    def __init__(self, connection: Connection, prices: dict[str, PriceVersion]) -> None:
        super().__init__(prices)
        self._connection = connection
        self._accounts: dict[str, Account] = {}
        self._locked: set[str] | None = None
        # Looked up for the whole batch at once, by what the session is asked for one at a time.
        self._counters: dict[str, Counters] = {}
        self._holds: dict[str, int] = {}
        self._bearers: dict[tuple[str, str], list[tuple[str, State]]] = {}
        self._versions: dict[tuple[str, str, int], str | None] = {}
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
        self._load_holds({one.line_id for one in keys.values() if one.limits.concurrency is not None})
        self._load_bearers({(keys[name].account_id, storable(word)) for name, word in names.bearers if name in keys})
        return Loaded(reservations, self._operations(names.operations), keys, dict(self._accounts))

    def counters(self, key_id: str) -> Counters:
        """See Session."""
        if key_id not in self._counters:
            self._counters[key_id] = super().counters(key_id)
        return self._counters[key_id]

    def open_holds(self, key_id: str) -> int:
        """See Session."""
        if key_id not in self._holds:
            self._holds[key_id] = super().open_holds(key_id)
        return self._holds[key_id]

    def bearers(self, account_id: str, idempotency_key: str) -> list[tuple[str, State]]:
        """See Session."""
        found = self._bearers.get((account_id, storable(idempotency_key)))
        return super().bearers(account_id, idempotency_key) if found is None else found

    def price_at(self, model: str, account_id: str, at_ms: int) -> PriceVersion | None:
        """See Session. The first question about a model is answered for every account of the batch."""
        if (model, account_id, at_ms) not in self._versions:
            scopes = {account_id, "", *self._accounts}
            found = dict(self._all(_IN_EFFECT, list(scopes), model, at_ms))
            self._versions |= {(model, scope, at_ms): found.get(scope) for scope in scopes}
        version = self._versions[model, account_id, at_ms]
        return None if version is None else self.price(version)

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
            if changes.prices:
                self._connection.execute(_SHARE_NUMBERS)
            for statement, columns in write.statements(changes):
                self._connection.execute(statement, columns)

    def _all(self, statement: str, *values: Any) -> list[Any]:
        return run(self._connection, statement, values).fetchall()

    def _concerned(self, names: Names) -> set[str]:
        if not names.keys and not names.reservations:
            return set()
        values = {"keys": array(names.keys), "reservations": array(names.reservations)}
        return {row[0] for row in self._connection.execute(_CONCERNED, values)}

    def _lock(self, account_ids: set[str]) -> None:
        """Once a session, all of them; one more later could be waited for by somebody who waits for us."""
        if self._locked is None:
            self._locked = account_ids
            for row in self._connection.execute(_LOCK, (array(account_ids),)) if account_ids else ():
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

    def _load_holds(self, line_ids: set[str]) -> None:
        if line_ids := line_ids - self._holds.keys():
            found = dict(self._all(_OPEN_HOLDS, list(line_ids)))
            self._holds |= {line_id: found.get(line_id, 0) for line_id in line_ids}

    def _load_bearers(self, pairs: set[tuple[str, str]]) -> None:
        if pairs := pairs - self._bearers.keys():
            self._bearers |= {pair: [] for pair in pairs}
            columns = [list(column) for column in zip(*pairs, strict=True)]
            for account_id, word, reservation_id, state in self._all(_BEARERS, *columns, *columns):
                self._bearers[account_id, word].append((reservation_id, State(state)))

    def _draw(self) -> None:
        """Numbers for as many postings as are named, to be taken from the end. Drawn under the locks, so that within an account
        they rise; what was left of an earlier draw is lower and used up first."""
        postings = max(self._named, 1)
        with self._connection.pipeline():
            # A statement of its own: within one, numbers may be drawn before the lock is had.
            self._connection.execute(_SHARE_NUMBERS)
            drawn = self._connection.execute(_NUMBERS, (postings, LEGS * postings))
        transactions, entries = drawn.fetchall()[0]
        self._transactions = _falling(transactions, self._transactions)
        self._entries = _falling(entries, self._entries)


def _falling(drawn: Sequence[int], left: Sequence[int]) -> list[int]:
    return sorted([*drawn, *left], reverse=True)
