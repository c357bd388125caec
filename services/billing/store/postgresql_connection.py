"""Connections to PostgreSQL with our settings. Only the PostgreSQL store's modules import it.

Every wait is bounded: connecting, statements, locks, packets that nobody acknowledges. The server ends a transaction of ours
that idles, so that a process that was stopped does not keep an account from the others.
"""

from functools import lru_cache
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.string import StrDumper

from services.common.errors import ConfigurationError

Connection = psycopg.Connection[tuple[Any, ...]]

MIN_VERSION = 14
CONNECT_TIMEOUT_S = 5
UNACKNOWLEDGED_MS = 10_000
LOCK_TIMEOUT_MS = 5_000
STATEMENT_TIMEOUT_MS = 15_000
IDLE_TIMEOUT_MS = 10_000
# A question may be an export or the audit of a large ledger; it locks nothing.
READ_TIMEOUT_MS = 600_000


class _Text(StrDumper):
    """PostgreSQL cannot store U+0000. No id of ours has one, so only what people and clients wrote is changed."""

    def dump(self, obj: str) -> Any:
        return super().dump(obj.replace("\0", "\ufffd"))


def connect(url: str, *, read_only: bool = False) -> Connection:
    """A connection that commits each statement unless told to BEGIN. ConfigurationError where the server does not keep what it
    acknowledges, psycopg.Error where it cannot be reached."""
    connection = psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=CONNECT_TIMEOUT_S,
        application_name="speedinfer-billing",
        keepalives=1,
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=2,
        tcp_user_timeout=UNACKNOWLEDGED_MS,
    )
    try:
        _check(connection, place(url))
        statement_ms, idle_ms = (
            (READ_TIMEOUT_MS, READ_TIMEOUT_MS) if read_only else (STATEMENT_TIMEOUT_MS, IDLE_TIMEOUT_MS)
        )
        for name, value in (
            ("statement_timeout", str(statement_ms)),
            ("lock_timeout", str(LOCK_TIMEOUT_MS)),
            ("idle_in_transaction_session_timeout", str(idle_ms)),
            ("default_transaction_isolation", "read committed"),
            ("default_transaction_read_only", "on" if read_only else "off"),
        ):
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        connection.adapters.register_dumper(str, _Text)
    except BaseException:
        connection.close()
        raise
    return connection


def place(url: str) -> str:
    """The database's name and host, for messages; never the URL, which may hold a password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error as error:
        raise ConfigurationError("billing.database is not a URL that PostgreSQL understands") from error
    return f"PostgreSQL database {parts.get('dbname', '')!r} at {parts.get('host') or 'this machine'}"


def said(error: psycopg.Error) -> str:
    """What PostgreSQL said, without the rows that it may quote in its details."""
    return error.diag.message_primary or type(error).__name__


@lru_cache(maxsize=256)
def words(statement: str) -> str:
    """How PostgreSQL says what `sql_reader` and `sql_session` leave to a store."""
    return statement.replace("IN (?*)", "= ANY(%s)").replace("?", "%s")


def _check(connection: Connection, where: str) -> None:
    row = connection.execute(
        "SELECT current_setting('server_version_num')::int / 10000, current_setting('server_encoding'), "
        "current_setting('fsync'), current_setting('synchronous_commit')"
    ).fetchone()
    assert row is not None, "settings are one row"
    version, encoding, fsync, synchronous_commit = row
    if version < MIN_VERSION:
        raise ConfigurationError(f"{where} runs version {version}; {MIN_VERSION} or later is needed")
    if encoding != "UTF8":
        raise ConfigurationError(f"{where} has the encoding {encoding}; UTF8 is needed")
    if fsync != "on":
        raise ConfigurationError(f"{where} runs with fsync = {fsync}: what it acknowledges may be lost; turn it on")
    if synchronous_commit in ("off", "local"):
        raise ConfigurationError(
            f"{where} runs with synchronous_commit = {synchronous_commit}: what it acknowledges may be lost; "
            "set it to on for billing's role and database"
        )
