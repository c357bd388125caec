"""Which store a database URL means. The composition root imports it."""

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.billing.store.port import Store
from services.billing.store.sqlite import SqliteStore
from services.common.errors import ConfigurationError

SQLITE = "sqlite:///"
POSTGRESQL = ("postgresql", "postgres")


def foresee(url: str) -> None:
    """See whether the database can be opened once whoever uses it lets it go. ConfigurationError if not; nothing is changed."""
    if _is_postgresql(url):
        _postgresql().foresee(url)
        return
    path = _file(url)
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as database:
            database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.Error as error:
        if "locked" in str(error) or "busy" in str(error):
            return
        raise ConfigurationError(f"billing.database: {path} cannot be taken over: {error}") from None


def open_store(url: str, now_ms: Callable[[], int], lock_wait_s: float = 0.0) -> Store:
    """Open (and make or migrate) the database. ConfigurationError says what is wrong with it.
    Another process that uses it is waited for at most `lock_wait_s`, where only one may."""
    if _is_postgresql(url):
        store: Store = _postgresql().PostgresqlStore(url, now_ms)
        return store
    return SqliteStore(_file(url), now_ms, lock_wait_s)


def _file(url: str) -> Path:
    if url.startswith(SQLITE) and len(url) > len(SQLITE):
        return Path(url.removeprefix(SQLITE))
    scheme = url.partition(":")[0]
    raise ConfigurationError(
        f"billing.database: {scheme!r} databases are not known; sqlite:///PATH and postgresql://... are"
    )


def _is_postgresql(url: str) -> bool:
    return url.partition("://")[0] in POSTGRESQL


def _postgresql() -> Any:
    """Its module. Imported only here: its driver is not needed for SQLite."""
    try:
        from services.billing.store import postgresql
    except ImportError as error:
        raise ConfigurationError("billing.database: PostgreSQL needs psycopg, which is not installed") from error
    return postgresql
