"""Numbered migrations: what is common to all stores, and those of a SQLite database. Only stores import it.

A database is taken only if it is exactly what the migrations that it names would have made: each is known and unchanged, none
is missing, and every table, index and trigger stands as written. A newer version, half a migration or a dropped trigger is
refused, since to go on would be to keep books in a place that nobody knows.
"""

import hashlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from services.common.errors import ConfigurationError

FOLDER = Path(__file__).parent / "migrations"
_TABLE = """CREATE TABLE migration (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL, applied_at_ms INTEGER NOT NULL
) STRICT"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file."""

    number: int
    name: str
    text: str

    @property
    def sha256(self) -> str:
        """Of its text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def known(folder: Path) -> list[Migration]:
    """All migrations of a folder, in order: files named `NNNN_what.sql`."""
    files = sorted(folder.glob("[0-9]*.sql"))
    return [Migration(int(file.stem.split("_")[0]), file.stem, file.read_text()) for file in files]


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


def check_known(applied: list[tuple[int, str, str]], migrations: list[Migration], place: str) -> None:
    """Refuse migrations (number, name, hash) that ran and are not ours."""
    for index, (number, name, sha256) in enumerate(applied):
        if index >= len(migrations):
            raise ConfigurationError(
                f"{place} is of version {number} ({name}), newer than this program knows "
                f"({len(migrations)}); start the program that made it, or a later one"
            )
        if (number, name, sha256) != (migrations[index].number, migrations[index].name, migrations[index].sha256):
            raise ConfigurationError(f"{place} has a migration {number} ({name}) that this program does not know")


def check_objects(expected: dict[str, str], found: dict[str, str], version: int, place: str) -> None:
    """Refuse a database whose objects (definitions by name) are not exactly the expected ones."""
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if wrong:
        raise ConfigurationError(
            f"{place} is half migrated or was altered by hand: {', '.join(wrong)} not as version {version} has it; "
            "restore it from a backup"
        )


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
