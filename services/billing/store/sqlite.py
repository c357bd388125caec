"""The SQLite store: one file, one writing process. Only `store/open.py` imports it.

WAL with `synchronous=FULL`: a commit that was answered is on disk. A lock file keeps a second billing away from the same
database, whose leases and batches would not know of ours.
"""

# Statements are put together from constants of ours only; values always go in as parameters.
# ruff: noqa: S608

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from services.billing.key import Key
from services.billing.limits import Counters
from services.billing.price import PriceVersion
from services.billing.reservation import Reservation, State
from services.billing.store import rows, sql_seals, sqlite_words
from services.billing.store.kept import Kept
from services.billing.store.migrate import migrate
from services.billing.store.port import Changes, Loaded, Names, StoreError
from services.billing.store.sql_session import PERIODS, SqlSession
from services.billing.store.sqlite_reader import SqliteReader
from services.common.errors import ConfigurationError

BUSY_TIMEOUT_MS = 5_000
LOOK_FOR_LOCK_EVERY_S = 0.005
# The first with STRICT tables and JSON functions always built in.
MIN_SQLITE = (3, 38, 0)
T = TypeVar("T")


class SqliteStore:
    """See Store."""

    shared = False

    def __init__(self, path: Path, now_ms: Callable[[], int], lock_wait_s: float = 0.0) -> None:
        if sqlite3.sqlite_version_info < MIN_SQLITE:
            raise ConfigurationError(f"SQLite {sqlite3.sqlite_version} is too old; 3.38 or later is needed")
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = lock(path, lock_wait_s)
        # Price versions never change, so what was read once holds.
        self._prices: dict[str, PriceVersion] = {}
        self._kept = Kept()
        # What the log holds may never have reached the disk.
        self._unsure = True
        try:
            self._connection = connect(path)
            try:
                migrate(self._connection, now_ms(), str(path))
            except BaseException:
                self._connection.close()
                raise
        except BaseException as error:
            os.close(self._lock)
            if isinstance(error, sqlite3.Error):
                raise ConfigurationError(f"the database {path} cannot be used: {error}") from error
            raise

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """See Store."""
        return (sqlite3.Error, ConfigurationError)

    @contextmanager
    def session(self) -> Iterator["SqliteSession"]:
        """See Store."""
        try:
            if self._unsure:
                self._empty_log()
            self._connection.execute("BEGIN IMMEDIATE")
            session = SqliteSession(self._connection, self._prices, self._kept)
            yield session
            self._connection.execute("COMMIT")
            session.stored()
        except BaseException as error:
            self._kept.forget()
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error) and not isinstance(error, sqlite3.IntegrityError):
                raise StoreError(f"billing's database did not store it: {error}") from error
            raise

    def reconnect(self) -> None:
        """See Store. The old connection is closed last: while one is open, SQLite knows that a commit failed; a first one reads
        the log anew, and would find there what nobody was told of."""
        try:
            connection = connect(self._path)
        except (sqlite3.Error, ConfigurationError) as error:
            raise StoreError(f"billing's database cannot be opened: {error}") from error
        with suppress(sqlite3.Error):
            self._connection.close()
        self._connection, self._unsure = connection, True
        self._kept.forget()

    def _empty_log(self) -> None:
        """Write what the log holds into the database, and that to disk. A process that ended between writing and fsync leaves
        commits in the log that no loss of power would leave; a repeated call is answered from them without another commit, so
        they must be on disk first. A reader that is in the way has kept the log known; it is not waited for."""
        self._connection.execute("PRAGMA busy_timeout = 0")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        # A commit of nothing begins a new log; only then is the old one void, should it come back.
        self._connection.execute("UPDATE migration SET number = number WHERE number = 1")
        self._unsure = False

    def open_holds(self) -> Iterable[tuple[str, int, int]]:
        """See Store."""
        statement = "SELECT reservation_id, created_at_ms, hard_end_ms FROM reservation WHERE state = ?"
        try:
            return self._connection.execute(statement, (int(State.HELD),)).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"billing's database cannot be read: {error}") from error

    def may_sweep(self) -> bool:
        """See Store. There is no other process."""
        return True

    def reader(self) -> SqliteReader:
        """See Store."""
        return SqliteReader(connect(self._path, read_only=True))

    def close(self) -> None:
        """See Store."""
        self._connection.close()
        os.close(self._lock)


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection with our settings; those on which durability rests are asserted."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
    if mode != "wal" or synchronous != 2:
        connection.close()
        raise ConfigurationError(
            f"{path}: SQLite runs with journal_mode={mode}, synchronous={synchronous}; WAL and FULL (2) are needed, "
            "which a local file system has"
        )
    if read_only:
        connection.execute("PRAGMA query_only = ON")
    return connection


def lock(path: Path, wait_s: float) -> int:
    """The right to write. A predecessor that has it is waited for by looking, since a lock that is waited for in the kernel
    has no deadline."""
    descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if time.monotonic() >= until:
                os.close(descriptor)
                raise ConfigurationError(f"another billing process uses {path}") from error
            time.sleep(LOOK_FOR_LOCK_EVERY_S)
        else:
            return descriptor


class SqliteSession(SqlSession):
    """See Session. BEGIN IMMEDIATE has locked the whole database, accounts included."""

    def __init__(self, connection: sqlite3.Connection, prices: dict[str, PriceVersion], kept: Kept) -> None:
        super().__init__(prices)
        self._connection = connection
        self._kept = kept
        self._loaded = Loaded()
        self._changes = Changes()
        self._transaction = self._highest("ledger_transaction")
        self._entry = self._highest("entry")

    def load(self, names: Names) -> Loaded:
        """See Session."""
        kept = self._kept
        reservations, unknown = _known(kept.holds, names.reservations)
        reservations |= self._by_id("reservation", "reservation_id", rows.RESERVATION, unknown, rows.reservation)
        keys, unknown = _known(kept.keys, names.keys | {one.key_id for one in reservations.values()})
        keys |= self._by_id("api_key", "key_id", rows.KEY, unknown, rows.key)
        account_ids = names.accounts | {key.account_id for key in keys.values()}
        account_ids |= {one.account_id for one in reservations.values() if one.account_id is not None}
        accounts, unknown = _known(kept.accounts, account_ids)
        accounts |= self._by_id("account", "account_id", rows.ACCOUNT, unknown, rows.account, "AND kind = 'customer'")
        # What was loaded first is what the batch changes; another load in it finds the rows as they were before.
        self._loaded.accounts = accounts | self._loaded.accounts
        self._loaded.keys = keys | self._loaded.keys
        return Loaded(reservations, self._operations(names.operations), keys, accounts)

    def renewals(self, reservation_ids: Iterable[str]) -> dict[str, int]:
        """See Session. The one process that there is needs no store to remember its own."""
        return {}

    def next_transaction(self) -> int:
        """See Session."""
        self._transaction += 1
        return self._transaction

    def next_entry(self) -> int:
        """See Session."""
        self._entry += 1
        return self._entry

    def save(self, changes: Changes) -> None:
        """See Session."""
        self._changes = changes
        many = self._connection.executemany
        many(
            _insert("account", rows.ACCOUNT, "kind"),
            [(*rows.account_row(one), "customer") for one in changes.new_accounts.values()],
        )
        changed = changes.changed_accounts.values()
        many(_UPDATE_ACCOUNT, [(*rows.account_figures(one), one.account_id) for one in changed])
        limited = changes.limited_accounts.values()
        many(_UPDATE_LIMITS, [(*rows.account_limits(one), one.account_id) for one in limited])
        many(_insert("api_key", rows.KEY), [rows.key_row(one) for one in changes.new_keys.values()])
        many(_UPDATE_KEY, [_key_changes(one) for one in changes.changed_keys.values()])
        many(_insert("price_version", rows.PRICE), [rows.price_row(one) for one in changes.prices])
        # Before new ones: what this batch closed frees its idempotency key for what it opens.
        many(_UPDATE_RESERVATION, [_reservation_changes(one) for one in changes.changed_reservations.values()])
        many(_INSERT_RESERVATION, [rows.reservation_row(one) for one in changes.new_reservations.values()])
        many(_UPSERT_COUNTER, _counter_rows(changes.counters))
        many(
            "INSERT INTO operation VALUES (?, ?, ?, ?, ?)",
            [(one.operation_id, one.kind, one.content, one.answer, one.done_at_ms) for one in changes.operations],
        )
        transactions, entries = map(rows.transaction_row, changes.transactions), map(rows.entry_row, changes.entries)
        many("INSERT INTO ledger_transaction VALUES (?, ?, ?, ?, ?, ?)", transactions)
        many("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?)", entries)
        many(_INSERT_CHARGE, [rows.charge_row(one, one.charge) for one in changes.transactions if one.charge])
        many(_insert("seal", sql_seals.SEAL), [sql_seals.row(one) for one in changes.seals])

    def stored(self) -> None:
        """The session has ended well: what it read and wrote is known now."""
        self._kept.stored(self._loaded, self._changes)

    def _all(self, statement: str, *values: Any) -> list[Any]:
        return sqlite_words.run(self._connection, statement, values)

    def _price_of(self, model: str, account_id: str, at_ms: int) -> PriceVersion | None:
        scope = (model, account_id)
        if scope not in self._kept.prices:
            found = self._all(
                f"SELECT {rows.PRICE} FROM price_version WHERE model = ? AND account_id = ? "
                "ORDER BY effective_from_ms, number",
                *scope,
            )
            self._kept.keep_prices(scope, [rows.price(row) for row in found])
        applies = [one for one in self._kept.prices[scope] if one.effective_from_ms <= at_ms]
        return applies[-1] if applies else None

    def _highest(self, table: str) -> int:
        return int(self._all(f"SELECT max(number) FROM {table}")[0][0] or 0)


def _known(kept: Mapping[str, T], wanted: Iterable[str]) -> tuple[dict[str, T], set[str]]:
    """Those of the wanted that are kept, and the names of the others."""
    found = {name: kept[name] for name in wanted if name in kept}
    return found, {name for name in wanted if name not in found}


def _insert(table: str, columns: str, *more: str) -> str:
    names = ", ".join((columns, *more))
    return f"INSERT INTO {table} ({names}) VALUES ({rows.marks(names)})"


_UPDATE_ACCOUNT = f"UPDATE account SET {rows.assignments(rows.ACCOUNT_FIGURES)} WHERE account_id = ?"
_UPDATE_LIMITS = f"UPDATE account SET {rows.assignments(rows.ACCOUNT_LIMITS)} WHERE account_id = ?"
_UPDATE_KEY = "UPDATE api_key SET revoked_at_ms = ?, expires_at_ms = ?, replaced_by_key_id = ? WHERE key_id = ?"
_UPDATE_RESERVATION = (
    "UPDATE reservation SET state = ?, closed_at_ms = ?, charge_nanos = ?, prompt_tokens = ?, cached_prompt_tokens = ?, "
    "completion_tokens = ?, worker_id = ?, attempts = ?, ending = ?, overrun = ?, balance_after_nanos = ?, cause = ? "
    "WHERE reservation_id = ?"
)
_INSERT_RESERVATION = _insert("reservation", rows.RESERVATION)
_INSERT_CHARGE = _insert("charge", f"transaction_number, booked_at_ms, {rows.CHARGE}")
_UPSERT_COUNTER = "INSERT OR REPLACE INTO key_counter VALUES (?, ?, ?, ?, ?, ?)"


def _key_changes(one: Key) -> rows.Row:
    return (one.revoked_at_ms, one.limits.expires_at_ms, one.replaced_by_key_id, one.key_id)


def _reservation_changes(one: Reservation) -> rows.Row:
    row = rows.reservation_row(one)
    return (row[5], *row[14:25], row[0])


def _counter_rows(counters: dict[str, Counters]) -> list[rows.Row]:
    return [
        (key_id, period, window.start_ms, window.requests, window.tokens, window.spend_nanos)
        for key_id, kept in counters.items()
        for period, window in zip(PERIODS, (kept.minute, kept.day, kept.month), strict=True)
    ]
