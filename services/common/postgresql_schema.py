"""Numbered migrations of a PostgreSQL database. PostgreSQL stores of any service import it; its driver comes with it.

A schema is taken only if it is exactly what the migrations that it names make. What they make depends on the server's version,
so they are run in a schema that is rolled back, and the two are compared.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from services.common import migrations as numbered
from services.common.errors import ConfigurationError
from services.common.migrations import Migration

Connection = psycopg.Connection[tuple[Any, ...]]

LOCK_TIMEOUT_MS = 5_000
_TABLE = """CREATE TABLE migration (
    number BIGINT PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL, applied_at_ms BIGINT NOT NULL
)"""
# How long a process waits for another one's migration.
MIGRATION_WAIT_MS = 600_000
_SCRATCH = "speedinfer_as_written"

# Every relation with its columns, every constraint, index, trigger and function of a schema, each as one text.
_OBJECTS = """
SELECT c.relname::text, concat_ws(' ', c.relkind, c.relpersistence, c.reloptions, c.relrowsecurity, (
    SELECT string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), l.collname, a.attnotnull,
                                a.attidentity, pg_get_expr(d.adbin, d.adrelid)), ', ' ORDER BY a.attnum)
    FROM pg_attribute a
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    LEFT JOIN pg_collation l ON l.oid = a.attcollation
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND c.relkind <> 'i'
), i.indisvalid, CASE WHEN i.indexrelid IS NOT NULL THEN pg_get_indexdef(c.oid) END)
FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid WHERE c.relnamespace = %(schema)s::regnamespace
UNION ALL
SELECT conname::text, concat_ws(' ', pg_get_constraintdef(oid), convalidated) FROM pg_constraint
WHERE connamespace = %(schema)s::regnamespace AND conrelid <> 0
UNION ALL
SELECT tgname::text, concat_ws(' ', pg_get_triggerdef(oid), tgenabled) FROM pg_trigger
WHERE NOT tgisinternal AND tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = %(schema)s::regnamespace)
UNION ALL
SELECT proname::text, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = %(schema)s::regnamespace
"""

# What migrations (their hashes) make on a server of a version.
_expected: dict[tuple[int, tuple[str, ...]], dict[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose schema it is: a service, as messages name it, and the folder of its migrations."""

    service: str
    folder: Path


def migrate(connection: Connection, owner: Owner, now_ms: int, place: str) -> None:
    """Bring the connection's schema to the newest version, or refuse it with a ConfigurationError that says why. Of several
    processes that start at once, one does it and the others wait."""
    with connection.transaction():
        # The one wait here that others decide: for a migration of theirs, which may be a long one.
        connection.execute(f"SET LOCAL lock_timeout = {MIGRATION_WAIT_MS}")
        schema = _schema(connection, owner, place)
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s || ' migrates', 0))", (schema,))
        connection.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
        # Once it may: an index over many rows takes its time.
        connection.execute(f"SET LOCAL statement_timeout = {MIGRATION_WAIT_MS}")
        # It locks nothing yet that anybody waits for, and thinks longer between its statements than what comes after it.
        connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {MIGRATION_WAIT_MS}")
        found = _objects(connection, schema)
        if not found:
            connection.execute(_TABLE)
        for migration in _missing(connection, owner, found, place):
            _apply(connection, migration, now_ms)


def check(connection: Connection, owner: Owner, place: str) -> None:
    """Refuse what `migrate` would refuse, and change nothing."""
    with connection.transaction(force_rollback=True):
        if found := _objects(connection, _schema(connection, owner, place)):
            _missing(connection, owner, found, place)


def _schema(connection: Connection, owner: Owner, place: str) -> str:
    row = connection.execute("SELECT quote_ident(current_schema())").fetchone()
    if row is None or row[0] is None:
        raise ConfigurationError(f"{place} has no schema on its search path; {owner.service} needs one of its own")
    return str(row[0])


def _missing(connection: Connection, owner: Owner, found: dict[str, str], place: str) -> list[Migration]:
    """The migrations that have not run on what was found."""
    if found and "migration" not in found:
        raise ConfigurationError(
            f"{place} holds tables that are not {owner.service}'s; give {owner.service} a database or schema of its own"
        )
    migrations = numbered.known(owner.folder)
    applied = connection.execute("SELECT number, name, sha256 FROM migration ORDER BY number").fetchall()
    numbered.check_known([(row[0], row[1], row[2]) for row in applied], migrations, place)
    if found:
        numbered.check_objects(_made_by(connection, migrations[: len(applied)]), found, len(applied), place)
    return migrations[len(applied) :]


def _apply(connection: Connection, migration: Migration, now_ms: int) -> None:
    connection.execute(migration.text.encode())
    connection.execute(
        "INSERT INTO migration VALUES (%s, %s, %s, %s)", (migration.number, migration.name, migration.sha256, now_ms)
    )


def _made_by(connection: Connection, migrations: list[Migration]) -> dict[str, str]:
    version = (connection.info.server_version, tuple(migration.sha256 for migration in migrations))
    if version not in _expected:
        with connection.transaction(force_rollback=True):
            connection.execute(f"CREATE SCHEMA {_SCRATCH}")
            connection.execute(f"SET LOCAL search_path = {_SCRATCH}")
            connection.execute(_TABLE)
            for migration in migrations:
                _apply(connection, migration, 0)
            _expected[version] = _objects(connection, _SCRATCH)
    return _expected[version]


def _objects(connection: Connection, schema: str) -> dict[str, str]:
    """Definitions by name, without the schema's. What shares a name (a key's constraint and its index) is told together."""
    found: dict[str, list[str]] = {}
    for name, text in connection.execute(_OBJECTS, {"schema": schema}):
        found.setdefault(name, []).append(text.replace(f"{schema}.", ""))
    return {name: "\n".join(sorted(texts)) for name, texts in found.items()}
