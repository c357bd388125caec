"""Settlements that nobody can book, kept for a person: `data_dir/edge/quarantine.jsonl`. `outbox.py` imports it.

Each line is a JSON object: `why` (billing's word, or `unreadable`), and `settle` (as in the outbox) or `line` (what could
not be read). The edges of a machine share the file, one writer at a time. It is bounded: what finds no room, or no disk,
stays in the outbox, which is bounded too and then turns new work away. A line may come twice, if a process dies between it
and the mark in the outbox; none is lost.
"""

import fcntl
import os
from pathlib import Path

import orjson

from services.edge.settlement import Settlement

NAME = "quarantine.jsonl"
# About 50,000 settlements, each of which needs a person.
MAX_BYTES = 16 * 1024 * 1024


class Quarantine:
    """The file."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes

    @property
    def size_bytes(self) -> int:
        """What waits for a person; 0 once somebody has moved the file away."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def keep(self, entry: Settlement, why: str) -> None:
        """Return when a settlement is on disk. Blocks. OSError if it is not."""
        self._append([{"why": why, "settle": orjson.loads(entry.line())["settle"]}])

    def keep_lines(self, lines: list[bytes]) -> None:
        """The same for lines of a file that could not be read."""
        self._append([{"why": "unreadable", "line": line.decode("latin-1")} for line in lines])

    def _append(self, objects: list[dict[str, object]]) -> None:
        text = b"".join(orjson.dumps(each) + b"\n" for each in objects)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            # Not waited for: whoever has it may be stopped. The settlement stays where it is and is tried again.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = os.fstat(descriptor).st_size
            if size + len(text) > self._max_bytes:
                raise OSError("the quarantine is full")
            if os.write(descriptor, text) != len(text):
                os.ftruncate(descriptor, size)
                raise OSError("the quarantine's disk is full")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
