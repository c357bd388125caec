"""How SQLite says what `sql_reader` and `sql_session` leave to a store. Only the SQLite store imports it."""

import json
import sqlite3
from collections.abc import Sequence
from typing import Any


def run(connection: sqlite3.Connection, statement: str, values: Sequence[Any]) -> list[Any]:
    """All rows. A list goes in as one JSON text, so that the statement is the same for any number of values."""
    words = statement.replace("(?*)", "(SELECT value FROM json_each(?))")
    given = [json.dumps(value) if isinstance(value, list) else value for value in values]
    return connection.execute(words, given).fetchall()
