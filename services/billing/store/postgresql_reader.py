"""Reading from PostgreSQL beside the writer. Only `store/postgresql.py` imports it.

A connection that broke, as when the server was started again, is made anew for the next question.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from typing import Any

import psycopg

from services.billing.store.postgresql_connection import connect, given, run, words
from services.billing.store.sql_reader import SqlReader, Stream

ROWS_A_FETCH = 2_000


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
