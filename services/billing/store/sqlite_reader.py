"""Reading from the SQLite store beside its writer, in snapshots that WAL gives. Only `store/sqlite.py` imports it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from services.billing.store import sqlite_words
from services.billing.store.sql_reader import SqlReader, Stream


class SqliteReader(SqlReader):
    """See Reader."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def close(self) -> None:
        """See Reader."""
        self._connection.close()

    def _all(self, statement: str, *values: Any) -> list[Any]:
        return sqlite_words.run(self._connection, statement, values)

    @contextmanager
    def _snapshot(self) -> Iterator[Stream]:
        self._connection.execute("BEGIN")
        try:
            yield lambda statement, *values: self._connection.cursor().execute(statement, values)
        finally:
            self._connection.execute("ROLLBACK")
