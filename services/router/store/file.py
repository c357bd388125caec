"""Registrations in one JSON file of mode 0600, replaced as a whole: a reader sees the old or the new, never a part."""

import asyncio
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from services.common.errors import ConfigurationError
from services.router.store.port import Picture, Record, StoreError

VERSION = 1


class FileStore:
    """Implements store.port.Store. One process at a time changes the file; it has read it before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # What the file holds, by id.
        self._records: dict[str, Record] = {}

    @property
    def is_reachable(self) -> bool:
        """See the port."""
        return True

    async def open(self) -> None:
        """See the port."""
        self._records = {record.worker_id: record for record in await asyncio.to_thread(self._read)}

    async def load(self, since: int = -1) -> Picture:
        """See the port. The file as `open` found it, and what was changed since."""
        return Picture(0, frozenset(self._records), list(self._records.values()))

    async def put(self, record: Record) -> Record:
        """See the port."""
        old = self._records.get(record.worker_id)
        stored = replace(record, draining=False, registered_at_s=(old or record).registered_at_s)
        await self._save({**self._records, record.worker_id: stored})
        return stored

    async def drain(self, worker_id: str) -> Record | None:
        """See the port."""
        record = self._records.get(worker_id)
        if record is None:
            return None
        stored = replace(record, draining=True)
        await self._save({**self._records, worker_id: stored})
        return stored

    async def remove(self, worker_id: str) -> bool:
        """See the port."""
        if worker_id not in self._records:
            return False
        await self._save({each: record for each, record in self._records.items() if each != worker_id})
        return True

    async def close(self) -> None:
        """Nothing is held."""

    async def _save(self, records: dict[str, Record]) -> None:
        try:
            # It waits for a disk.
            await asyncio.to_thread(self._write, records)
        except OSError as error:
            raise StoreError(str(error.strerror)) from error
        self._records = records

    def _read(self) -> list[Record]:
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"the registrations in {self._path} cannot be read: {error}") from None
        try:
            value = json.loads(text)
            if value["version"] != VERSION:
                raise ConfigurationError(f"{self._path} was written by another version (format {value['version']!r})")
            return [_record(entry) for entry in value["workers"]]
        except (KeyError, TypeError, ValueError):
            raise ConfigurationError(
                f"{self._path} holds no registrations; move it away to start without any"
            ) from None

    def _write(self, records: Mapping[str, Record]) -> None:
        folder = self._path.parent
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = folder / f".{self._path.name}.{os.getpid()}.{secrets.token_hex(4)}"
        value = {
            "version": VERSION,
            "workers": [
                {
                    "registration": record.document,
                    "registered_at_s": record.registered_at_s,
                    "draining": record.draining,
                }
                for record in records.values()
            ],
        }
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump(value, file, indent=1, sort_keys=True)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        # The new name itself must outlive a power cut, too.
        directory = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _record(entry: dict[str, Any]) -> Record:
    document = entry["registration"]
    if not isinstance(document, dict):
        raise TypeError("a registration is an object")
    return Record(document, float(entry["registered_at_s"]), bool(entry["draining"]))
