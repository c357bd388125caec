"""Settlements that billing has not answered yet, on disk. The settler imports it.

Files of `data_dir/edge/outbox/`: each belongs to the process that holds its lock. At start the files that nobody locks are
adopted and replayed; billing's ids are idempotent, so a settlement that was already booked is not booked again.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import orjson
import structlog

from services.edge.outbox_file import SUFFIX, OutboxFile
from services.edge.settlement import Settlement

_log = structlog.get_logger(__name__)
# Large enough to be rare, small enough that one open settlement does not keep much.
FILE_BYTES = 4 * 1024 * 1024
QUARANTINE = "quarantine.jsonl"


class Outbox:
    """What is written down and not yet answered."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._files: dict[Path, OutboxFile] = {}
        self._where: dict[str, OutboxFile] = {}
        self._current: OutboxFile | None = None
        self._broken = False

    def __len__(self) -> int:
        return len(self._where)

    def __contains__(self, reservation_id: str) -> bool:
        return reservation_id in self._where

    def has_room(self) -> bool:
        """Whether more work may be taken on; if not, its settlement might find no room."""
        if self._broken and self._current is not None:
            # A line that says nothing, to learn whether the disk takes one again.
            with contextlib.suppress(OSError):
                self._current.probe()
                self._broken = False
        return not self._broken and self.size_bytes < self._max_bytes

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return sum(file.size_bytes for file in self._files.values())

    def open(self) -> None:
        """Make this process's file and adopt those that dead ones left. OSError."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._current = self._add(OutboxFile.create(self._folder))
        self.adopt()

    def adopt(self) -> int:
        """Take over the files that nobody locks; answers how many settlements came with them."""
        count = 0
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            if path in self._files or (file := OutboxFile.adopt(path)) is None:
                continue
            self._add(file)
            self._where |= dict.fromkeys(file.pending, file)
            count += len(file.pending)
            if file.pending:
                _log.info("outbox_adopted", settlements=len(file.pending))
            self._tidy(file)
        return count

    def append(self, entry: Settlement) -> None:
        """Write a settlement down before it is sent. OSError, after which no new work is taken."""
        try:
            if self._current is None or self._current.size_bytes >= FILE_BYTES:
                self._turn_over()
            assert self._current is not None
            self._current.append(entry)
        except OSError:
            self._broken = True
            raise
        self._broken = False
        self._where[entry.reservation_id] = self._current

    async def sync(self, reservation_id: str) -> None:
        """Return once a settlement is on disk, or answered. OSError."""
        file = self._where.get(reservation_id)
        if file is not None:
            await file.sync()

    def answered(self, reservation_id: str) -> None:
        """Billing's answer has come."""
        file = self._where.pop(reservation_id, None)
        if file is None:
            return
        try:
            file.answered(reservation_id)
        except OSError as error:
            _log.warning("outbox_mark_failed", error=error.strerror)
        self._tidy(file)

    def pending(self) -> Iterator[Settlement]:
        """What has no answer, oldest file first."""
        for file in list(self._files.values()):
            yield from list(file.pending.values())

    def quarantine(self, entry: Settlement, why: str) -> None:
        """Keep a settlement that billing will never book, for a person to look at."""
        line = orjson.dumps({"why": why, **orjson.loads(entry.line())}) + b"\n"
        path = self._folder.parent / QUARANTINE
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, line)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            _log.error("quarantine_failed", reservation_id=entry.reservation_id, error=error.strerror)

    async def close(self) -> None:
        """Put what is left on disk and unlock; the next process replays it."""
        for file in self._files.values():
            if file.pending:
                await file.sync()
            file.close()
        self._files.clear()
        self._current = None

    def _turn_over(self) -> None:
        old, self._current = self._current, self._add(OutboxFile.create(self._folder))
        if old is not None:
            old.sealed = True
            self._tidy(old)

    def _add(self, file: OutboxFile) -> OutboxFile:
        self._files[file.path] = file
        return file

    def _tidy(self, file: OutboxFile) -> None:
        if file.sealed and not file.pending:
            del self._files[file.path]
            file.close()
