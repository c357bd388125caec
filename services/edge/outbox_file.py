"""One file of the outbox: locked by the process that owns it, appended to, synced in groups. `outbox.py` imports it.

Invariants: a file is locked before it has its name, so nobody finds one that is being made; it is removed only when every
settlement in it has billing's answer. Appending is a write to the page cache, which survives the death of the process;
what must survive the machine's is synced, off the loop, and callers that come together share one sync.
"""

import asyncio
import fcntl
import os
import uuid
from pathlib import Path
from typing import Self

from services.edge import settlement
from services.edge.settlement import Settlement

SUFFIX = ".jsonl"


class OutboxFile:
    """A file and the settlements in it that have no answer yet."""

    def __init__(self, path: Path, descriptor: int, pending: dict[str, Settlement], size: int) -> None:
        self.path = path
        self.pending = pending
        self.size_bytes = size
        # A file that is full, or was another process's, is not appended to any more.
        self.sealed = False
        self._descriptor = descriptor
        self._next_sync: asyncio.Task[None] | None = None
        self._running_sync: asyncio.Task[None] | None = None

    @classmethod
    def create(cls, folder: Path) -> Self:
        """A new, empty file. OSError."""
        name = uuid.uuid4().hex
        draft, path = folder / f".{name}", folder / f"{name}{SUFFIX}"
        descriptor = os.open(draft, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.rename(path)
        return cls(path, descriptor, {}, 0)

    @classmethod
    def adopt(cls, path: Path) -> Self | None:
        """A file that a dead process left; None if its owner lives or somebody else took it. OSError."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if os.fstat(descriptor).st_nlink == 0:
            # Whoever had the lock before us has replayed and removed it.
            os.close(descriptor)
            return None
        pending, whole, broken = settlement.read_lines(path.read_bytes())
        if broken:
            # Never seen without a broken disk; kept for a person to look at.
            os.link(path, path.with_suffix(".broken"))
        # A torn last line would run into what is appended next.
        os.ftruncate(descriptor, whole)
        file = cls(path, descriptor, pending, whole)
        file.sealed = True
        return file

    def append(self, entry: Settlement) -> None:
        """Write a settlement down. OSError."""
        self._write(entry.line())
        self.pending[entry.reservation_id] = entry

    def answered(self, reservation_id: str) -> None:
        """Billing's answer has come. A line that says so saves a replay; if it is lost, a replay does no harm."""
        if self.pending.pop(reservation_id, None) is not None:
            self._write(settlement.done_line(reservation_id))

    def probe(self) -> None:
        """Write a line that means nothing. OSError if the disk takes none."""
        self._write(settlement.done_line(""))

    async def sync(self) -> None:
        """Return once everything appended before this call is on disk. OSError."""
        # A sync that runs already may have begun before the last append: the next one is shared instead.
        if self._next_sync is None:
            self._next_sync = asyncio.get_running_loop().create_task(self._sync_next(), name="outbox-sync")
        await asyncio.shield(self._next_sync)

    def close(self) -> None:
        """Unlock; the file goes if nothing in it is open, else it is left for the next process."""
        if not self.pending:
            self.path.unlink(missing_ok=True)
        syncing = self._next_sync or self._running_sync
        if syncing is None or syncing.done():
            os.close(self._descriptor)
        else:
            # The number of a closed descriptor may already be another file's.
            syncing.add_done_callback(lambda _done: os.close(self._descriptor))

    async def _sync_next(self) -> None:
        if self._running_sync is not None:
            await asyncio.wait([self._running_sync])
        self._running_sync, self._next_sync = self._next_sync, None
        await asyncio.to_thread(_sync, self._descriptor, self.path.parent)

    def _write(self, line: bytes) -> None:
        written = os.write(self._descriptor, line)
        if written != len(line):
            # A full disk; the part is cut off again so that later lines stay readable.
            os.ftruncate(self._descriptor, self.size_bytes)
            raise OSError("the outbox's disk is full")
        self.size_bytes += written


def _sync(descriptor: int, folder: Path) -> None:
    os.fsync(descriptor)
    directory = os.open(folder, os.O_RDONLY)
    try:
        # The name must be on disk as well as the contents.
        os.fsync(directory)
    finally:
        os.close(directory)
