"""Files that are made under another name before they take their own, and what killed processes leave of them. Only
`sqlite_copy.py` imports it."""

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
    """An empty file of nobody else's beside another one, gone afterwards with all that SQLite put next to it."""
    made = beside.with_name(f".{beside.name}.{os.getpid()}.{secrets.token_hex(4)}")
    os.close(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        yield made
    finally:
        for end in _ENDS:
            made.with_name(made.name + end).unlink(missing_ok=True)


def remove_left(beside: Path) -> None:
    """Remove the drafts of processes that were killed. For who has the lock under which drafts of this name are made: then
    none of them is anybody's, whatever process has such a number by now, here or in another container."""
    ends = "|".join(map(re.escape, _ENDS))
    name = re.compile(rf"\.{re.escape(beside.name)}\.[0-9]+\.[0-9a-f]{{8}}({ends})")
    for path in list(beside.parent.iterdir()):
        if name.fullmatch(path.name):
            path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """A file's content, or a folder's names, on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
