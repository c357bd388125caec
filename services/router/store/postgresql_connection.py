"""Connections of a router to PostgreSQL, with our settings. Only the PostgreSQL store imports it.

Every wait is bounded: connecting, statements, locks, packets that nobody acknowledges.
"""

from typing import Any

import psycopg

from services.common.errors import ConfigurationError

Connection = psycopg.AsyncConnection[tuple[Any, ...]]

SETTING = "router.database"
APPLICATION = "speedinfer-router"
MIN_VERSION = 14
CONNECT_TIMEOUT_S = 3
UNACKNOWLEDGED_MS = 5_000
KEEPALIVE_IDLE_S = 5
KEEPALIVE_EVERY_S = 2
KEEPALIVES = 2
LOCK_TIMEOUT_MS = 2_000
STATEMENT_TIMEOUT_MS = 4_000
IDLE_TRANSACTION_MS = 5_000

OPTIONS: dict[str, Any] = {
    "autocommit": True,
    "connect_timeout": CONNECT_TIMEOUT_S,
    "application_name": APPLICATION,
    "keepalives": 1,
    "keepalives_idle": KEEPALIVE_IDLE_S,
    "keepalives_interval": KEEPALIVE_EVERY_S,
    "keepalives_count": KEEPALIVES,
    "tcp_user_timeout": UNACKNOWLEDGED_MS,
}
_SET = (
    f"SELECT set_config('statement_timeout', '{STATEMENT_TIMEOUT_MS}', false), "
    f"set_config('lock_timeout', '{LOCK_TIMEOUT_MS}', false), "
    f"set_config('idle_in_transaction_session_timeout', '{IDLE_TRANSACTION_MS}', false), "
    "set_config('default_transaction_isolation', 'read committed', false)"
)


async def connect(url: str) -> Connection:
    """A connection that commits each statement. psycopg.Error where the server cannot be reached."""
    connection = await psycopg.AsyncConnection.connect(url, **OPTIONS)
    try:
        await connection.execute(_SET)
    except BaseException:
        await connection.close()
        raise
    return connection


def check(connection: psycopg.Connection[tuple[Any, ...]], where: str) -> None:
    """ConfigurationError where the server is none that can be used."""
    row = connection.execute(
        "SELECT current_setting('server_version_num')::int / 10000, current_setting('server_encoding')"
    ).fetchone()
    assert row is not None, "settings are one row"
    version, encoding = row
    if version < MIN_VERSION:
        raise ConfigurationError(f"{where} runs version {version}; {MIN_VERSION} or later is needed")
    if encoding != "UTF8":
        raise ConfigurationError(f"{where} has the encoding {encoding}; UTF8 is needed")
