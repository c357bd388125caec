"""One file of the outbox: locked by the process that owns it, appended to, synced in groups. `outbox.py` imports it.

Invariants: a file is locked before it has its name, so nobody finds one that is being made; it is removed only when every
settlement in it has billing's answer, or a place in another file that is on disk. Appending is a write to the page cache,
which survives the death of the process; what must survive the machine's is synced, off the loop, and callers that come
together share one sync. A file that failed once has failed for good: after a failed fsync the kernel may hold pages that it
lost for clean, and the next fsync would say that they are on disk.
"""

import asyncio
import contextlib
import fcntl
import os
import uuid
from concurrent.futures import Executor
from pathlib import Path
from typing import Self

from services.edge import settlement
from services.edge.settlement import Settlement

SUFFIX = ".jsonl"


class OutboxFile:
    """A file and the settlements in it that have no answer yet."""

    def __init__(
        self, path: Path, descriptor: int, pending: dict[str, Settlement], size: int, disk: Executor | None
    ) -> None:
        self.path = path
        self.pending = pending
        self.size_bytes = size
        # A file that is full, or was another process's, is not appended to any more.
        self.sealed = False
        self.failed = False
        # Of a file that was adopted: lines that could not be read, and when its owner wrote last, by the wall clock.
        self.unreadable: list[bytes] = []
        self.written_at_s = 0.0
        self._descriptor = descriptor
        self._disk = disk
        self._next_sync: asyncio.Task[None] | None = None
        self._running_sync: asyncio.Task[None] | None = None

    @classmethod
    def create(cls, folder: Path, disk: Executor | None = None) -> Self:
        """A new, empty file, whose syncs run in `disk`. OSError."""
        name = uuid.uuid4().hex
        draft, path = folder / f".{name}", folder / f"{name}{SUFFIX}"
        descriptor = os.open(draft, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            draft.rename(path)
        except BaseException:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                draft.unlink()
            raise
        return cls(path, descriptor, {}, 0, disk)

    @classmethod
    def adopt(cls, path: Path, disk: Executor | None = None) -> Self | None:
        """A file that a dead process left; None if its owner lives or somebody else took it. OSError."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            status = os.fstat(descriptor)
            if status.st_nlink == 0:
                # Whoever had the lock before us has replayed and removed it.
                os.close(descriptor)
                return None
            pending, whole, unreadable = settlement.read_lines(path.read_bytes())
            if whole != status.st_size:
                # A torn last line would run into what is appended next.
                os.ftruncate(descriptor, whole)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        file = cls(path, descriptor, pending, whole, disk)
        file.sealed = True
        file.unreadable = unreadable
        file.written_at_s = status.st_mtime
        return file

    @property
    def syncing(self) -> bool:
        """Whether the disk has still to answer."""
        return any(task is not None and not task.done() for task in (self._next_sync, self._running_sync))

    def append(self, entry: Settlement) -> None:
        """Write a settlement down. OSError, and the file has failed."""
        self._write(entry.line())
        self.pending[entry.reservation_id] = entry

    def answered(self, reservation_id: str) -> None:
        """Billing's answer has come. A line that says so saves a replay; if it is lost, a replay does no harm. OSError."""
        if self.pending.pop(reservation_id, None) is not None and not self.failed:
            self._write(settlement.done_line(reservation_id))

    def check_name(self) -> None:
        """OSError unless the file is found under its name; else the next process would not find it either."""
        found, ours = os.stat(self.path), os.fstat(self._descriptor)
        if (found.st_dev, found.st_ino) != (ours.st_dev, ours.st_ino):
            self.failed = True
            raise OSError("another file has taken the outbox file's name")

    async def sync(self, wait_s: float) -> None:
        """Return once everything appended before this call is on disk. OSError, and the file has failed."""
        if self.failed:
            raise OSError("the outbox file has failed before")
        # A sync that runs already may have begun before the last append: the next one is shared instead.
        if self._next_sync is None:
            self._next_sync = asyncio.get_running_loop().create_task(self._sync_next(), name="outbox-sync")
            # All who wait for it may have gone.
            self._next_sync.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            async with asyncio.timeout(wait_s):
                await asyncio.shield(self._next_sync)
        except OSError:
            # A time-out is one, too.
            self.failed = True
            raise

    def close(self) -> None:
        """Unlock; the file goes if nothing in it is open, else it is left for the next process. OSError if it cannot go."""
        try:
            if not self.pending:
                self.path.unlink(missing_ok=True)
        finally:
            self.unlock()

    def unlock(self) -> None:
        """Leave the file, as it is, to whoever adopts it."""
        syncing = [task for task in (self._running_sync, self._next_sync) if task is not None and not task.done()]
        if syncing:
            # The number of a closed descriptor may already be another file's.
            syncing[-1].add_done_callback(lambda _done: os.close(self._descriptor))
        else:
            os.close(self._descriptor)

    async def _sync_next(self) -> None:
        if self._running_sync is not None:
            await asyncio.wait([self._running_sync])
        self._running_sync, self._next_sync = self._next_sync, None
        await asyncio.get_running_loop().run_in_executor(self._disk, self._sync_now)

    def _sync_now(self) -> None:
        if self.failed:
            # The sync before this one failed, and took with it what this one would have answered for.
            raise OSError("the outbox file has failed before")
        try:
            os.fsync(self._descriptor)
            directory = os.open(self.path.parent, os.O_RDONLY)
            try:
                # The name must be on disk as well as the contents.
                os.fsync(directory)
            finally:
                os.close(directory)
            self.check_name()
        except OSError:
            self.failed = True
            raise

    def _write(self, line: bytes) -> None:
        try:
            written = os.write(self._descriptor, line)
            if written != len(line):
                # A full disk; the part is cut off again so that the file stays readable.
                os.ftruncate(self._descriptor, self.size_bytes)
                raise OSError("the outbox's disk is full")
        except OSError:
            self.failed = True
            raise
        self.size_bytes += written
