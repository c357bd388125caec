"""Which store a database URL means. The composition root imports it."""

import contextlib
import re
import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from services.billing.store import sqlite_copy
from services.billing.store.port import Reader, Store
from services.billing.store.sqlite import SqliteStore
from services.common.errors import ConfigurationError

SQLITE = "sqlite:///"
POSTGRESQL = ("postgresql", "postgres")


def foresee(url: str) -> None:
    """See whether the database can be opened, once whoever uses it lets it go where only one may. ConfigurationError if not;
    nothing is changed."""
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


def open_copy(path: Path) -> AbstractContextManager[Reader]:
    """A reader of a SQLite file, whatever the settings say. ConfigurationError says what is wrong with it."""
    return sqlite_copy.reading(path)


def backup(url: str, target: Path) -> None:
    """Copy the ledger to a file while billing may be writing it. ConfigurationError where it is in no file."""
    _only_a_file(url, "copied with pg_dump")
    sqlite_copy.backup(_file(url), target)


def restore(
    url: str, copy: Path, now_ms: Callable[[], int], look: Callable[[Reader], None], *, replace: bool
) -> Path | None:
    """Put a copy in the ledger's place while billing does not run; answers where the one went that was there.
    ConfigurationError where the ledger is in no file."""
    _only_a_file(url, "put back with pg_restore")
    return sqlite_copy.restore(copy, _file(url), now_ms, look, replace=replace)


def _file(url: str) -> Path:
    if url.startswith(SQLITE) and len(url) > len(SQLITE):
        return Path(url.removeprefix(SQLITE))
    # Nothing else of it is repeated: whatever form it has, there may be a password in it.
    scheme = re.match(r"[a-z][a-z0-9+.-]{0,30}(?=://)", url)
    what = f"{scheme[0]!r} databases are not known" if scheme else "that is no URL"
    raise ConfigurationError(f"billing.database: {what}; sqlite:///PATH and postgresql://... are known")


def _only_a_file(url: str, instead: str) -> None:
    if _is_postgresql(url):
        raise ConfigurationError(f"the ledger is in PostgreSQL, where it is {instead}; see docs/guides/postgresql.md")


def _is_postgresql(url: str) -> bool:
    return url.partition("://")[0] in POSTGRESQL


def _postgresql() -> Any:
    """Its module. Imported only here: its driver is not needed for SQLite."""
    try:
        from services.billing.store import postgresql
    except ImportError as error:
        raise ConfigurationError("billing.database: PostgreSQL needs psycopg, which is not installed") from error
    return postgresql
