"""Numbered migrations as files, and when a database is refused. Stores of any service import it.

A database is taken only if it is exactly what the migrations that it names would have made: each is known and unchanged, none
is missing, and every table, index and trigger stands as written. A newer version, half a migration or a dropped trigger is
refused, since to go on would be to write into a place that nobody knows.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from services.common.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Migration:
    """One file."""

    number: int
    name: str
    text: str

    @property
    def sha256(self) -> str:
        """Of its text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def known(folder: Path) -> list[Migration]:
    """All migrations of a folder, in order: files named `NNNN_what.sql`."""
    files = sorted(folder.glob("[0-9]*.sql"))
    return [Migration(int(file.stem.split("_")[0]), file.stem, file.read_text()) for file in files]


def check_known(applied: list[tuple[int, str, str]], migrations: list[Migration], place: str) -> None:
    """Refuse migrations (number, name, hash) that ran and are not ours."""
    for index, (number, name, sha256) in enumerate(applied):
        if index >= len(migrations):
            raise ConfigurationError(
                f"{place} is of version {number} ({name}), newer than this program knows "
                f"({len(migrations)}); start the program that made it, or a later one"
            )
        if (number, name, sha256) != (migrations[index].number, migrations[index].name, migrations[index].sha256):
            raise ConfigurationError(f"{place} has a migration {number} ({name}) that this program does not know")


def check_objects(expected: dict[str, str], found: dict[str, str], version: int, place: str) -> None:
    """Refuse a database whose objects (definitions by name) are not exactly the expected ones."""
    wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if wrong:
        raise ConfigurationError(
            f"{place} is half migrated or was altered by hand: {', '.join(wrong)} not as version {version} has it; "
            "restore it from a backup"
        )
