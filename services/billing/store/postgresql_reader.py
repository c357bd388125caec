"""Reading from PostgreSQL beside the writer. Only `store/postgresql.py` imports it.

A connection that broke, as when the server was started again, is made anew for the next question.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from typing import Any

import psycopg
from psycopg import errors

from services.billing.store.port import StoreError
from services.billing.store.postgresql_connection import LOCK_TIMEOUT_MS, NUMBERS_LOCK, connect, given, run, words
from services.billing.store.sql_reader import SqlReader, Stream

ROWS_A_FETCH = 2_000
# How long a sealer may keep writers waiting behind it.
SEALING_TIMEOUT_MS = 1_000


class PostgresqlReader(SqlReader):
    """See Reader."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection = connect(url, read_only=True)

    def close(self) -> None:
        """See Reader."""
        self._connection.close()

    def _all(self, statement: str, *values: Any) -> list[Any]:
        try:
            return run(self._connection, statement, values).fetchall()
        except psycopg.OperationalError:
            if not self._connection.closed:
                raise
        self._connection = connect(self._url, read_only=True)
        return run(self._connection, statement, values).fetchall()

    @contextmanager
    def _before_sealing(self) -> Iterator[Stream]:
        """Numbers are drawn under a lock that is shared and lasts until their transaction is over. Whoever
        has it alone knows that no number below those that can be seen is still to come, and needs it only to begin. Writers
        wait behind a sealer that waits, so it waits for a moment only."""
        self._all("SELECT set_config('lock_timeout', ?, false)", str(SEALING_TIMEOUT_MS))
        try:
            self._all(f"SELECT pg_advisory_lock({NUMBERS_LOCK})")
        except errors.LockNotAvailable as error:
            raise StoreError("billing's database is busy; seal again later") from error
        finally:
            self._all("SELECT set_config('lock_timeout', ?, false)", str(LOCK_TIMEOUT_MS))
        alone = True
        try:
            with self._snapshot() as stream:
                # The moment is that of the first question.
                list(stream("SELECT 1"))
                self._connection.execute(f"SELECT pg_advisory_unlock({NUMBERS_LOCK})")
                alone = False
                yield stream
        finally:
            if alone:
                with suppress(psycopg.Error):
                    self._connection.execute(f"SELECT pg_advisory_unlock({NUMBERS_LOCK})")

    def _entries_at(self, stream: Stream, places: Sequence[tuple[str, int]]) -> Iterable[Any]:
        statement = (
            "SELECT entry.account_id, entry.account_seq, entry.balance_after_nanos, entry.chain "
            "FROM unnest(?::text[], ?::bigint[]) AS place (account_id, account_seq) JOIN entry USING (account_id, account_seq)"
        )
        return stream(statement, [name for name, _ in places], [number for _, number in places])

    @contextmanager
    def _snapshot(self) -> Iterator[Stream]:
        # Finds out whether the connection still stands, and makes it anew if not.
        self._all("SELECT 1")
        connection = self._connection
        names = count()
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            with ExitStack() as cursors:

                def stream(statement: str, *values: Any) -> Iterable[Any]:
                    cursor = cursors.enter_context(connection.cursor(name=f"stream_{next(names)}"))
                    cursor.itersize = ROWS_A_FETCH
                    return cursor.execute(words(statement), given(values))

                yield stream
        finally:
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")
