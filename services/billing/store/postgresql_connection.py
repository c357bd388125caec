"""Connections to PostgreSQL with our settings. Only the PostgreSQL store's modules import it.

Every wait is bounded: connecting, statements, locks, packets that nobody acknowledges. The server ends a transaction or a
connection of ours that idles, so that a process that was stopped or lost keeps neither an account nor the sweep from others.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.types.string import StrDumper, StrDumperUnknown

from services.billing.content import storable
from services.billing.store.postgresql_array import Array, array
from services.billing.store.postgresql_url import place
from services.common.errors import ConfigurationError

Connection = psycopg.Connection[tuple[Any, ...]]
Cursor = psycopg.Cursor[tuple[Any, ...]]

MIN_VERSION = 14
# Held, shared, by whoever draws numbers, until they are committed; alone, by whoever must miss none of them.
NUMBERS_LOCK = "hashtextextended(quote_ident(current_schema()) || ' numbers', 0)"
CONNECT_TIMEOUT_S = 5
UNACKNOWLEDGED_MS = 10_000
# At both ends: the server finds out, too, that a machine of ours is gone, and gives up what it had locked.
KEEPALIVE_IDLE_S = 10
KEEPALIVE_EVERY_S = 5
KEEPALIVES = 2
LOCK_TIMEOUT_MS = 5_000
STATEMENT_TIMEOUT_MS = 15_000
# Between two statements the writer computes for tens of milliseconds. One that was stopped in between has accounts locked, for
# which the other processes wait.
IDLE_TIMEOUT_MS = 2_000
# The writer speaks with every sweep. One that was stopped (SIGSTOP) and says nothing for so long does not keep others from
# sweeping in its place. Questions may be rarer; their connections are made anew when they are needed.
FORSAKEN_MS = 300_000
# A question may be an export or the audit of a large ledger; it locks nothing.
READ_TIMEOUT_MS = 600_000


class _Text(StrDumper):
    """PostgreSQL cannot store U+0000. No id of ours has one, so only what people and clients wrote is changed."""

    def dump(self, obj: str) -> Any:
        return super().dump(storable(obj))


class _Array(StrDumperUnknown):
    """The same, of an array's elements."""

    def dump(self, obj: str) -> Any:
        return super().dump(storable(obj))


def connect(url: str, *, read_only: bool = False) -> Connection:
    """A connection that commits each statement unless told to BEGIN. ConfigurationError where the server does not keep what it
    acknowledges, psycopg.Error where it cannot be reached."""
    connection = psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=CONNECT_TIMEOUT_S,
        application_name="speedinfer-billing",
        keepalives=1,
        keepalives_idle=KEEPALIVE_IDLE_S,
        keepalives_interval=KEEPALIVE_EVERY_S,
        keepalives_count=KEEPALIVES,
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
            ("idle_session_timeout", str(FORSAKEN_MS)),
            ("tcp_keepalives_idle", str(KEEPALIVE_IDLE_S)),
            ("tcp_keepalives_interval", str(KEEPALIVE_EVERY_S)),
            ("tcp_keepalives_count", str(KEEPALIVES)),
            # What a batch asks has an index each. Left to itself the planner reads whole tables that it believes small, as all
            # are until they are first analysed, and compares every row with every id.
            ("enable_seqscan", "on" if read_only else "off"),
            ("jit", "on" if read_only else "off"),
            ("default_transaction_isolation", "read committed"),
            ("default_transaction_read_only", "on" if read_only else "off"),
        ):
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        connection.adapters.register_dumper(str, _Text)
        connection.adapters.register_dumper(Array, _Array)
    except BaseException:
        connection.close()
        raise
    return connection


def run(connection: Connection, statement: str, values: Sequence[Any]) -> Cursor:
    """A statement in the words that `sql_reader` and `sql_session` leave to a store. A list goes in as one array."""
    return connection.execute(words(statement), given(values))


def given(values: Sequence[Any]) -> list[Any]:
    """Values as they go in."""
    return [array(value) if isinstance(value, list) else value for value in values]


@lru_cache(maxsize=256)
def words(statement: str) -> str:
    """How PostgreSQL says it."""
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
