"""The PostgreSQL store: any number of writing processes on one database. Only `store/open.py` imports it.

The settings on which durability rests are looked at on the very connection that commits. A failed or unanswered commit is a
StoreError, after which the connection is made anew: what became of it is found out by asking again with the same id.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress

import psycopg
from psycopg import errors

from services.billing.price import PriceVersion
from services.billing.store.port import Again, Names, StoreError
from services.billing.store.postgresql_connection import connect
from services.billing.store.postgresql_reader import PostgresqlReader
from services.billing.store.postgresql_schema import check, migrate
from services.billing.store.postgresql_session import PostgresqlSession
from services.billing.store.postgresql_url import place, said
from services.common.errors import ConfigurationError

# Another process was first; nothing of ours stands, and it can be done again at once.
_RACES = (errors.UniqueViolation, errors.DeadlockDetected, errors.SerializationFailure)
# Mistakes of ours, or values that no column takes: the operation's fault and not the database's.
_BUGS = (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError)


def foresee(url: str) -> None:
    """See `open.foresee`. Others may use it meanwhile, and nothing is changed."""
    where = place(url)
    try:
        with closing(connect(url)) as connection:
            check(connection, where)
    except psycopg.Error as error:
        raise ConfigurationError(f"billing.database: the {where} cannot be used: {said(error)}") from None


class PostgresqlStore:
    """See Store."""

    shared = True

    def __init__(self, url: str, now_ms: Callable[[], int]) -> None:
        self._url = url
        self._place = place(url)
        self._prices: dict[str, PriceVersion] = {}
        self._sweeps = False
        # What the server said while it committed.
        self._warned = False
        try:
            self._connection = connect(url)
            try:
                migrate(self._connection, now_ms(), self._place)
            except BaseException:
                self._connection.close()
                raise
        except psycopg.Error as error:
            raise ConfigurationError(f"the {self._place} cannot be used: {said(error)}") from None
        self._watch()

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """See Store."""
        return (psycopg.Error, ConfigurationError)

    @contextmanager
    def session(self) -> Iterator[PostgresqlSession]:
        """See Store."""
        try:
            self._connection.execute("BEGIN", prepare=False)
            yield PostgresqlSession(self._connection, self._prices)
            self._warned = False
            ended = self._connection.execute("COMMIT", prepare=False).statusmessage
            if ended != "COMMIT" or self._warned:
                # A wait for a standby that was broken off is only a warning.
                raise StoreError("billing's database did not confirm that it stored it")
        except BaseException as error:
            with suppress(psycopg.Error):
                self._connection.execute("ROLLBACK", prepare=False)
            if isinstance(error, _RACES):
                raise Again(Names()) from error
            if isinstance(error, psycopg.Error) and not isinstance(error, _BUGS):
                raise StoreError(f"billing's database did not store it: {said(error)}") from error
            raise

    def reconnect(self) -> None:
        """See Store."""
        self._connection.close()
        try:
            self._connection = connect(self._url)
        except (psycopg.Error, ConfigurationError) as error:
            reason = said(error) if isinstance(error, psycopg.Error) else str(error)
            raise StoreError(f"billing's database cannot be reached: {reason}") from None
        self._watch()

    def open_holds(self) -> Iterable[tuple[str, int, int]]:
        """See Store."""
        statement = "SELECT reservation_id, created_at_ms, hard_end_ms FROM reservation WHERE state = 1"
        try:
            return [(row[0], row[1], row[2]) for row in self._connection.execute(statement)]
        except psycopg.Error as error:
            raise StoreError(f"billing's database cannot be read: {said(error)}") from error

    def may_sweep(self) -> bool:
        """See Store. The lock is the connection's: it ends with it, and a lapse can be committed only on it."""
        if not self._sweeps:
            statement = "SELECT pg_try_advisory_lock(hashtextextended(quote_ident(current_schema()) || ' sweeps', 0))"
            try:
                row = self._connection.execute(statement).fetchone()
            except psycopg.Error as error:
                raise StoreError(f"billing's database cannot be read: {said(error)}") from error
            self._sweeps = row is not None and bool(row[0])
        return self._sweeps

    def reader(self) -> PostgresqlReader:
        """See Store."""
        return PostgresqlReader(self._url)

    def close(self) -> None:
        """See Store."""
        # At once, not when the server finds that the connection is gone: a successor wants it now.
        with suppress(psycopg.Error):
            self._connection.execute("SELECT pg_advisory_unlock_all()")
        self._connection.close()

    def _watch(self) -> None:
        self._sweeps = False
        self._warned = False
        self._connection.add_notice_handler(self._notice)

    def _notice(self, notice: psycopg.errors.Diagnostic) -> None:
        self._warned = self._warned or notice.severity_nonlocalized == "WARNING"
