"""Numbered migrations of a SQLite database. Only stores import it. When one is refused: `common/migrations.py`."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from services.common.errors import ConfigurationError
from services.common.migrations import Migration, check_known, check_objects, known

FOLDER = Path(__file__).parent / "migrations"
_TABLE = """CREATE TABLE migration (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL, applied_at_ms INTEGER NOT NULL
) STRICT"""


def migrate(connection: sqlite3.Connection, now_ms: int, place: str) -> None:
    """Bring a database to the newest version, or refuse it with a ConfigurationError that says why."""
    migrations = known(FOLDER)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _objects(connection):
            connection.execute(_TABLE)
        applied = _applied(connection, place)
        check_known(applied, migrations, place)
        check_objects(_expected(migrations[: len(applied)]), _objects(connection), len(applied), place)
        for migration in migrations[len(applied) :]:
            _apply(connection, migration, now_ms)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def check(connection: sqlite3.Connection, place: str) -> None:
    """Refuse with a ConfigurationError a database that is not of the newest version; change nothing."""
    migrations = known(FOLDER)
    applied = _applied(connection, place)
    check_known(applied, migrations, place)
    check_objects(_expected(migrations[: len(applied)]), _objects(connection), len(applied), place)
    if len(applied) < len(migrations):
        raise ConfigurationError(
            f"{place} is of version {len(applied)}, older than this program's {len(migrations)}; billing brings it up when "
            "it starts, and `ledger restore` when it puts a copy back"
        )


def _apply(connection: sqlite3.Connection, migration: Migration, now_ms: int) -> None:
    for statement in _statements(migration.text):
        connection.execute(statement)
    connection.execute(
        "INSERT INTO migration VALUES (?, ?, ?, ?)", (migration.number, migration.name, migration.sha256, now_ms)
    )


def _applied(connection: sqlite3.Connection, place: str) -> list[tuple[int, str, str]]:
    if "migration" not in _objects(connection):
        raise ConfigurationError(f"{place} holds tables that are not billing's; give billing a database of its own")
    return connection.execute("SELECT number, name, sha256 FROM migration ORDER BY number").fetchall()


def _expected(migrations: list[Migration]) -> dict[str, str]:
    """What a database has in which just these migrations ran."""
    with_them = sqlite3.connect(":memory:", isolation_level=None)
    try:
        with_them.execute(_TABLE)
        for migration in migrations:
            _apply(with_them, migration, 0)
        return _objects(with_them)
    finally:
        with_them.close()


def _objects(connection: sqlite3.Connection) -> dict[str, str]:
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'")
    return {name: sql or "" for name, sql in rows}


def _statements(text: str) -> Iterator[str]:
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    assert not statement.strip() or statement.lstrip().startswith("--"), "a migration ends with a whole statement"
