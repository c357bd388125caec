"""The ledger that a restore replaces: kept under a second name, whole, be the process killed wherever. Only `sqlite_copy.py`
imports it.

The first name stays until the new ledger takes it in one step: a billing that started in between would otherwise find nothing
and begin with empty books. So a sound ledger's log is written into it first, and where that fails nothing is changed. A damaged
one cannot be opened under either name; its log goes aside with it, as it is, lest it be taken for part of the new ledger.
"""

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from services.billing.store import draft
from services.common.errors import ConfigurationError

BUSY_TIMEOUT_MS = 5_000
# SQLite has read what is there and found that it is no database, or a broken one. Every other error (no room, no right, a disk
# that does not read, somebody in the way) says nothing of the content and may be gone tomorrow.
DAMAGED = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT})


def put_aside(database: Path, now_ms: int) -> Path:
    """Give the ledger its second name and leave it nothing beside the first. ConfigurationError, and nothing is changed, where
    its log cannot be brought in although it is not damaged."""
    _remove_unused(database)
    aside = database.with_name(f"{database.name}.replaced-{now_ms}-{time.monotonic_ns()}")
    try:
        # Whoever opens for writing what is no database takes its log away in closing.
        _look(database)
        empty_log(database)
    except sqlite3.Error as error:
        if primary_code(error) not in DAMAGED:
            raise ConfigurationError(
                f"{database} was left as it was: its log cannot be written into it ({error}), and without that nothing may "
                "take its place"
            ) from error
        ends = [end for end in draft.BESIDE if _with(database, end).exists()]
    else:
        # A log that is empty is nobody's, and a linked one would outlive what it belongs to.
        ends = []
    for end in ("", *ends):
        os.link(_with(database, end), _with(aside, end))
    draft.sync(database.parent)
    for end in draft.BESIDE:
        _with(database, end).unlink(missing_ok=True)
    return aside


def _look(database: Path) -> None:
    """Read what every connection reads first, and change nothing. sqlite3.Error where it is damaged; any other error may be
    that of one who may only read."""
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.Error as error:
        if primary_code(error) in DAMAGED:
            raise


def empty_log(path: Path) -> None:
    """Write what the log holds into the database and that to disk, so that the one file is the whole. sqlite3.Error if not."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA synchronous = FULL")
        # Somebody who reads is no error of this statement's; it only says so.
        busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            raise sqlite3.OperationalError("another program is reading it")


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's code without its extension; 0 where the error is not SQLite's own."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _remove_unused(database: Path) -> None:
    """Take second names away that a killed restore gave: they are the very ledger that still has its first. One beside which
    something lies that the first name has no longer is the whole of a damaged ledger, and stays."""
    for aside in list(database.parent.glob(f"{_literal(database.name)}.replaced-*")):
        if aside.name.endswith(draft.BESIDE) or not aside.samefile(database):
            continue
        beside = [end for end in draft.BESIDE if _with(aside, end).exists()]
        if all(_with(database, end).exists() and _with(aside, end).samefile(_with(database, end)) for end in beside):
            # The name by which it is found goes last.
            for end in (*beside, ""):
                _with(aside, end).unlink()


def _with(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _literal(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
