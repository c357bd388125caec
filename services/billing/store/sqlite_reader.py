"""Reading from the SQLite store beside its writer, in snapshots that WAL gives. Only `store/sqlite.py` imports it."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
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

    def _before_sealing(self) -> AbstractContextManager[Stream]:
        # One process writes one number after another, so that they are in the order of commits.
        return self._snapshot()

    def _entries_at(self, stream: Stream, places: Sequence[tuple[str, int]]) -> Iterable[Any]:
        # Driven by the places: one search of the index for each.
        statement = (
            "SELECT entry.account_id, entry.account_seq, entry.balance_after_nanos, entry.chain FROM json_each(?) AS place "
            "CROSS JOIN entry ON entry.account_id = place.value ->> 0 AND entry.account_seq = place.value ->> 1"
        )
        return stream(statement, json.dumps(list(places)))
