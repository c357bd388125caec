"""Which store a database URL means. The composition root imports it."""

from collections.abc import Callable
from pathlib import Path

from services.billing.store.port import Store
from services.billing.store.sqlite import SqliteStore
from services.common.errors import ConfigurationError

SQLITE = "sqlite:///"
POSTGRESQL = ("postgresql", "postgres")


def open_store(url: str, now_ms: Callable[[], int], lock_wait_s: float = 0.0) -> Store:
    """Open (and make or migrate) the database. ConfigurationError says what is wrong with it.
    Another process that uses it is waited for at most `lock_wait_s`, where only one may."""
    if url.startswith(SQLITE) and len(url) > len(SQLITE):
        return SqliteStore(Path(url.removeprefix(SQLITE)), now_ms, lock_wait_s)
    scheme = url.partition(":")[0]
    if scheme in POSTGRESQL:
        try:
            # Only here: its driver is not needed for SQLite.
            from services.billing.store.postgresql import PostgresqlStore
        except ImportError as error:
            raise ConfigurationError(f"billing.database: {scheme} needs psycopg, which is not installed") from error
        return PostgresqlStore(url, now_ms)
    raise ConfigurationError(
        f"billing.database: {scheme!r} databases are not known; sqlite:///PATH and postgresql://... are"
    )
