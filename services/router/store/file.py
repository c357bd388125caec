"""Registrations in one JSON file of mode 0600, replaced as a whole: a reader sees the old or the new, never a part."""

import json
import os
import secrets
from pathlib import Path
from typing import Any

from services.common.errors import ConfigurationError
from services.router.store.port import Record

VERSION = 1


class FileStore:
    """Implements store.port.Store."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> list[Record]:
        """See the port."""
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

    def save(self, records: list[Record]) -> None:
        """See the port."""
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
                for record in records
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
