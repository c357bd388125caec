"""Settlements that billing has not answered yet, on disk. The settler and the delivery import it.

Files of `data_dir/edge/outbox/`: each belongs to the process that holds its lock. At start, and while this process runs, the
files that nobody locks are adopted and replayed; billing's ids are idempotent, so a settlement that was already booked is
not booked again.

Invariants: what was appended is pending until billing answers, whatever the disk does; where it could not be written it is
kept in memory, no new work is taken, and `mend` writes it down as soon as the disk lets it. Nothing is said to be on disk
that is in a file which failed once.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import structlog

from services.edge.metrics import Metrics
from services.edge.outbox_file import SUFFIX, OutboxFile
from services.edge.quarantine import NAME, Quarantine
from services.edge.settlement import Settlement

_log = structlog.get_logger(__name__)
# Large enough to be rare, small enough that one open settlement does not keep much.
FILE_BYTES = 4 * 1024 * 1024
# A disk that takes longer has failed, as far as a client that waits is concerned.
SYNC_WAIT_S = 10.0


class _Place(NamedTuple):
    # None while no disk has taken it.
    file: OutboxFile | None
    since_s: float


class Outbox:
    """What is written down and not yet answered."""

    def __init__(
        self,
        folder: Path,
        max_bytes: int,
        metrics: Metrics | None = None,
        *,
        sync_wait_s: float = SYNC_WAIT_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._metrics = metrics or Metrics()
        self._sync_wait_s = sync_wait_s
        self._now_s = now_s
        self._files: dict[Path, OutboxFile] = {}
        self._places: dict[str, _Place] = {}
        self._unwritten: dict[str, Settlement] = {}
        self._current: OutboxFile | None = None
        self._attempt: OutboxFile | None = None
        # One thread, so that a disk that hangs takes no other thread of the process.
        self._disk = ThreadPoolExecutor(1, "outbox")
        self._quarantine = Quarantine(folder.parent / NAME)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, reservation_id: str) -> bool:
        return reservation_id in self._places

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return sum(file.size_bytes for file in self._files.values())

    @property
    def oldest_s(self) -> float:
        """How long the oldest settlement has been waiting."""
        firsts = [next(iter(held)) for held in (*self._held(), self._unwritten) if held]
        since_s = min((self._places[each].since_s for each in firsts if each in self._places), default=self._now_s())
        return max(self._now_s() - since_s, 0.0)

    @property
    def sound(self) -> bool:
        """Whether everything that is pending is in a file that has not failed."""
        return not self._unwritten and not any(file.failed for file in self._files.values())

    def refusal(self) -> str | None:
        """Why no more work may be taken on, since its settlement might find no room: `full`, `broken`, or None."""
        if not self.sound:
            return "broken"
        return "full" if self.size_bytes >= self._max_bytes else None

    def open(self) -> None:
        """Make this process's file and adopt those that dead ones left. OSError."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._current = self._add(OutboxFile.create(self._folder, self._disk))
        for _ in self.adopt():
            pass

    def adopt(self) -> Iterator[int]:
        """Take over the files that nobody locks, as far as there is room; yields each one's number of settlements."""
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            if self.size_bytes >= self._max_bytes:
                return
            if path in self._files:
                continue
            try:
                file = self._adopt(path)
            except OSError as error:
                self._failure("adopt", error)
                continue
            if file is not None:
                yield len(file.pending)
                self._tidy(file)

    def append(self, entry: Settlement) -> None:
        """Take a settlement on, before it is sent. OSError if it is in memory only: then no new work is taken."""
        try:
            if not self.sound:
                raise OSError("the outbox is broken")
            if self._current is None or self._current.size_bytes >= FILE_BYTES:
                self._turn_over()
            assert self._current is not None
            self._current.append(entry)
        except OSError as error:
            self._unwritten[entry.reservation_id] = entry
            self._places[entry.reservation_id] = _Place(None, self._now_s())
            self._failure("append", error)
            raise
        self._places[entry.reservation_id] = _Place(self._current, self._now_s())

    async def sync(self, reservation_id: str) -> None:
        """Return once a settlement is on disk, or answered. OSError."""
        place = self._places.get(reservation_id)
        if place is None:
            return
        try:
            if place.file is None:
                raise OSError("the settlement is not in the outbox")
            await place.file.sync(self._sync_wait_s)
        except OSError as error:
            self._failure("sync", error)
            raise

    def answered(self, reservation_id: str) -> None:
        """Billing's answer has come."""
        self._places.pop(reservation_id, None)
        self._unwritten.pop(reservation_id, None)
        # It may be in two: a process that died between writing a new file and removing the old one leaves both.
        for file in [each for each in self._files.values() if reservation_id in each.pending]:
            self._mark(file, reservation_id)
            self._tidy(file)

    async def quarantined(self, entry: Settlement, why: str) -> bool:
        """Keep a settlement that billing will never book for a person; it is then pending no more. False if it is still."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._sync_wait_s):
                await loop.run_in_executor(self._disk, self._quarantine.keep, entry, why)
        except OSError as error:
            self._failure("quarantine", error)
            return False
        # Not before: what a crash leaves in both places is only seen twice.
        self.answered(entry.reservation_id)
        self._metrics.quarantined.inc()
        return True

    @property
    def quarantine_bytes(self) -> int:
        """What waits for a person."""
        return self._quarantine.size_bytes

    def pending(self) -> Iterator[Settlement]:
        """What has no answer, oldest file first."""
        for held in (*self._held(), self._unwritten):
            yield from list(held.values())

    def look(self) -> None:
        """See whether the files still have their names; one that has not has failed."""
        for file in self._files.values():
            try:
                file.check_name()
            except OSError as error:
                if not file.failed:
                    self._failure("look", error)
                file.failed = True

    async def mend(self) -> None:
        """Put what failed files and memory hold on disk, in a new file. OSError if the disk still takes nothing."""
        if self.sound:
            return
        if self._attempt is not None and self._attempt.syncing:
            raise OSError("the disk does not answer")
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._attempt = file = OutboxFile.create(self._folder, self._disk)
        failed = [each for each in self._files.values() if each.failed]
        try:
            for entry in [*(entry for each in failed for entry in each.pending.values()), *self._unwritten.values()]:
                file.append(entry)
            await file.sync(self._sync_wait_s)
        except BaseException:
            # The old files stay, and so does what they hold.
            file.pending.clear()
            self._close(file)
            raise
        self._replace(failed, file)
        _log.warning("outbox_mended", settlements=len(file.pending))

    async def close(self) -> None:
        """Put what is left on disk and unlock; the next process replays it."""
        try:
            await self.mend()
        except OSError as error:
            self._failure("append", error)
        for file in list(self._files.values()):
            try:
                if file.pending and not file.failed:
                    await file.sync(self._sync_wait_s)
            except OSError as error:
                self._failure("sync", error)
            self._close(file)
        if self._unwritten:
            _log.error("settlements_lost", reservation_ids=list(self._unwritten))
        self._files.clear()
        self._current = None
        self._disk.shutdown(wait=False)

    def _adopt(self, path: Path) -> OutboxFile | None:
        file = OutboxFile.adopt(path, self._disk)
        if file is None:
            return None
        # A lower bound of its settlements' age; the wall clock may have been set back.
        age_s = max(time.time() - file.written_at_s, 0.0)
        try:
            if file.unreadable:
                # Before the file can go. Never seen without a broken disk.
                self._quarantine.keep_lines(file.unreadable)
                self._metrics.unreadable.inc(len(file.unreadable))
        except OSError:
            # The file is left as it is, for another time.
            file.unlock()
            raise
        self._add(file)
        count = len(file.pending)
        self._places |= dict.fromkeys(file.pending, _Place(file, self._now_s() - age_s))
        if count:
            self._metrics.outbox_adopted.inc(count)
            _log.info("outbox_adopted", settlements=count)
        return file

    def _replace(self, failed: list[OutboxFile], file: OutboxFile) -> None:
        """`file` takes the place of those that failed, and of memory."""
        old, self._current = self._current, self._add(file)
        for reservation_id in list(file.pending):
            if (place := self._places.get(reservation_id)) is None:
                # Answered while the new file was being synced.
                self._mark(file, reservation_id)
                continue
            self._places[reservation_id] = place._replace(file=file)
            self._unwritten.pop(reservation_id, None)
        for each in failed:
            each.pending.clear()
            self._files.pop(each.path, None)
            self._close(each)
        if old is not None and old not in failed:
            old.sealed = True
            self._tidy(old)
        # What came while the new file was being synced.
        for reservation_id, entry in list(self._unwritten.items()):
            file.append(entry)
            self._places[reservation_id] = self._places[reservation_id]._replace(file=file)
            del self._unwritten[reservation_id]

    def _turn_over(self) -> None:
        old, self._current = self._current, self._add(OutboxFile.create(self._folder, self._disk))
        if old is not None:
            old.sealed = True
            self._tidy(old)

    def _held(self) -> list[dict[str, Settlement]]:
        return [file.pending for file in self._files.values()]

    def _mark(self, file: OutboxFile, reservation_id: str) -> None:
        try:
            file.answered(reservation_id)
        except OSError as error:
            self._failure("mark", error)

    def _add(self, file: OutboxFile) -> OutboxFile:
        self._files[file.path] = file
        return file

    def _tidy(self, file: OutboxFile) -> None:
        if file.sealed and not file.pending and self._files.pop(file.path, None) is not None:
            self._close(file)

    def _close(self, file: OutboxFile) -> None:
        try:
            file.close()
        except OSError as error:
            self._failure("remove", error)

    def _failure(self, operation: str, error: OSError) -> None:
        self._metrics.outbox_failures.labels(operation).inc()
        _log.error("outbox_failed", operation=operation, error=error.strerror or str(error) or type(error).__name__)
