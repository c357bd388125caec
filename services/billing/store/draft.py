"""Files that are made under another name before they take their own, and what killed processes leave of them. Only
`sqlite_copy.py` imports it.

Whoever makes a draft has a lock on it until it is done, which the system takes from a process that dies: so a draft that can be
locked is nobody's, whatever process has the number in its name by now, here or in another container.
"""

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# What SQLite keeps beside a database.
BESIDE = ("-wal", "-shm", "-journal")
_ENDS = ("", *BESIDE, ".lock")


@contextmanager
def draft(beside: Path) -> Iterator[Path]:
    """An empty file of nobody else's beside another one, gone afterwards with all that SQLite put next to it. SQLite has closed
    it by then."""
    made, descriptor = _made(beside)
    try:
        yield made
    finally:
        _remove(made)
        # Not before: closing it takes SQLite's own locks, too.
        os.close(descriptor)


def remove_left(beside: Path) -> None:
    """Remove the drafts of processes that were killed."""
    ends = "|".join(map(re.escape, _ENDS))
    name = re.compile(rf"(\.{re.escape(beside.name)}\.[0-9]+\.[0-9a-f]{{8}})(?:{ends})")
    found = {match[1] for path in beside.parent.iterdir() if (match := name.fullmatch(path.name))}
    for each in found:
        left = beside.with_name(each)
        try:
            descriptor = os.open(left, os.O_RDWR)
        except FileNotFoundError:
            # Killed while it removed them.
            _remove(left)
            continue
        except PermissionError:
            # Another user's: nothing of it is in our way.
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(left)
        except BlockingIOError:
            # Somebody is still at it.
            pass
        finally:
            os.close(descriptor)


def sync(path: Path) -> None:
    """A file's content, or a folder's names, on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _made(beside: Path) -> tuple[Path, int]:
    """A new file, and the descriptor that has its lock."""
    while True:
        made = beside.with_name(f".{beside.name}.{os.getpid()}.{secrets.token_hex(4)}")
        descriptor = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink:
                return made, descriptor
        except BlockingIOError:
            pass
        # Somebody took it for nobody's before it had its lock.
        os.close(descriptor)


def _remove(made: Path) -> None:
    for end in _ENDS:
        made.with_name(made.name + end).unlink(missing_ok=True)
