"""Copies of a SQLite ledger: made while billing writes, looked at by themselves, put back. Only `store/open.py` imports it."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from services.billing.store import draft, migrate, put_aside
from services.billing.store.sqlite import SqliteStore, lock
from services.billing.store.sqlite_reader import SqliteReader
from services.common.errors import ConfigurationError

BUSY_TIMEOUT_MS = 5_000


@contextmanager
def reading(path: Path) -> Iterator[SqliteReader]:
    """A reader of a file as it is, be billing running on it or not. ConfigurationError if it is no ledger of this version."""
    with _errors(path), closing(_read_only(path)) as connection:
        migrate.check(connection, str(path))
        yield SqliteReader(connection)


def backup(database: Path, target: Path) -> None:
    """Copy a ledger that may be in use: everything that was committed before, as of one moment. The copy is one file, on disk
    when this returns, and never takes the place of another."""
    if target.exists():
        raise ConfigurationError(f"{target} exists; a backup replaces nothing")
    with _errors(database, "cannot be copied"):
        draft.remove_left(target)
    with _errors(database, "cannot be copied"), draft.draft(target) as made:
        with closing(_read_only(database)) as source, closing(sqlite3.connect(made, isolation_level=None)) as copy:
            # In one step, which is one read transaction: steps in between would begin anew with every commit of billing's.
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
        draft.sync(made)
        try:
            os.link(made, target)
        except FileExistsError:
            raise ConfigurationError(f"{target} exists; a backup replaces nothing") from None
    draft.sync(target.parent)


def restore(
    copy: Path, database: Path, now_ms: Callable[[], int], look: Callable[[SqliteReader], None], *, replace: bool
) -> Path | None:
    """Put a copy where billing finds it, brought to this version; answers where the ledger went that was there. `look` sees it
    before that and may raise. ConfigurationError if billing runs, or if a ledger is there and is not to be replaced."""
    if not copy.is_file():
        raise ConfigurationError(f"{copy} does not exist")
    database.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    held = lock(database, 0.0)
    try:
        if database.exists() and not replace:
            raise ConfigurationError(f"{database} exists; say --replace to have it put aside")
        draft.remove_left(database)
        with _errors(copy), draft.draft(database) as made:
            with closing(_read_only(copy)) as source, closing(sqlite3.connect(made, isolation_level=None)) as written:
                source.backup(written)
            SqliteStore(made, now_ms).close()
            # Only the one file takes the ledger's place.
            put_aside.empty_log(made)
            with reading(made) as reader:
                look(reader)
            draft.sync(made)
            aside = put_aside.put_aside(database, now_ms()) if database.exists() else None
            made.replace(database)
        draft.sync(database.parent)
        return aside
    finally:
        os.close(held)


def _read_only(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise ConfigurationError(f"{path} does not exist")
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


@contextmanager
def _errors(path: Path, what: str = "cannot be read as a ledger") -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise ConfigurationError(f"{path} {what}: {error}") from error
    except OSError as error:
        raise ConfigurationError(f"{error.filename or path}: {error.strerror}") from error
