"""Copies of a SQLite ledger: made while billing writes, looked at by themselves, put back. Only `store/open.py` imports it."""

import contextlib
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from services.billing.store import migrate
from services.billing.store.sqlite import SqliteStore, lock
from services.billing.store.sqlite_reader import SqliteReader
from services.common.errors import ConfigurationError

BUSY_TIMEOUT_MS = 5_000
# What SQLite keeps beside a database.
BESIDE = ("-wal", "-shm")


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
    with _errors(database, "cannot be copied"), _draft(target) as draft:
        with closing(_read_only(database)) as source, closing(sqlite3.connect(draft, isolation_level=None)) as copy:
            # In one step, which is one read transaction: steps in between would begin anew with every commit of billing's.
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
        _sync(draft)
        try:
            os.link(draft, target)
        except FileExistsError:
            raise ConfigurationError(f"{target} exists; a backup replaces nothing") from None
    _sync(target.parent)


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
        with _errors(copy), _draft(database) as draft:
            with closing(_read_only(copy)) as source, closing(sqlite3.connect(draft, isolation_level=None)) as made:
                source.backup(made)
            SqliteStore(draft, now_ms).close()
            with reading(draft) as reader:
                look(reader)
            _sync(draft)
            aside = _keep(database, now_ms()) if database.exists() else None
            draft.replace(database)
        _sync(database.parent)
        return aside
    finally:
        os.close(held)


def _keep(database: Path, now_ms: int) -> Path:
    """Give the ledger that is there a second name. The first stays until the new one takes it in one step: a billing that
    started in between would otherwise find nothing and begin with empty books."""
    aside = database.with_name(f"{database.name}.replaced-{now_ms}-{time.monotonic_ns()}")
    for end in (*BESIDE, ""):
        with contextlib.suppress(FileNotFoundError):
            os.link(database.with_name(database.name + end), aside.with_name(aside.name + end))
    # Its log comes in, so that at no moment the first name stands for less than it did; that of a damaged one only has to go,
    # lest it be taken for part of the new one.
    with contextlib.suppress(sqlite3.Error), closing(sqlite3.connect(database)) as old:
        old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for end in BESIDE:
        database.with_name(database.name + end).unlink(missing_ok=True)
    return aside


def _read_only(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise ConfigurationError(f"{path} does not exist")
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


@contextmanager
def _draft(beside: Path) -> Iterator[Path]:
    """An empty file of nobody else's beside another one, gone afterwards with all that SQLite put next to it."""
    draft = beside.with_name(f".{beside.name}.{os.getpid()}.{secrets.token_hex(4)}")
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        yield draft
    finally:
        for end in ("", *BESIDE, "-journal", ".lock"):
            draft.with_name(draft.name + end).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _errors(path: Path, what: str = "cannot be read as a ledger") -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise ConfigurationError(f"{path} {what}: {error}") from error
    except OSError as error:
        raise ConfigurationError(f"{error.filename or path}: {error.strerror}") from error
