"""A folder of secret files that changes as a whole, in the form of a Kubernetes secret volume. Imported by the command only.

`tls.crt` is a link to `..data/tls.crt`, and `..data` one to a folder with the files of one make. A new make is written whole
beside it, then `..data` is renamed over: who reads through the names finds files that belong together, and Envoy, which watches
for just that rename, reads them again.
"""

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from services.cli.failure import CommandError

DATA = "..data"


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replace the folder's files, all at once; readable by their owner alone. CommandError."""
    try:
        _write(folder, files)
    except OSError as error:
        raise CommandError(f"{error.filename or folder} cannot be written: {error.strerror}") from None


def read(folder: Path, name: str) -> bytes | None:
    """A file of it; None if there is none. CommandError if it cannot be read, or lies open to others."""
    path = folder / name
    try:
        content = path.read_bytes()
        mode = path.stat().st_mode & 0o777
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from None
    if name.endswith(".key") and mode & 0o077:
        raise CommandError(f"{path} can be read by others (mode {mode:o}); run: chmod 600 {path}")
    return content


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if (folder / DATA).exists() and not (folder / DATA).is_symlink():
        raise CommandError(f"{folder / DATA} is no link; this folder is not one that the command has made")
    before = folder / os.readlink(folder / DATA) if (folder / DATA).is_symlink() else None
    made = folder / f"..{secrets.token_hex(8)}"
    made.mkdir(mode=0o700)
    try:
        for name, content in files.items():
            descriptor = os.open(made / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        draft = folder / f"{DATA}_tmp"
        draft.unlink(missing_ok=True)
        draft.symlink_to(made.name)
        draft.replace(folder / DATA)
    except BaseException:
        shutil.rmtree(made)
        raise
    for name in files:
        link = folder / name
        if not link.is_symlink():
            link.unlink(missing_ok=True)
            link.symlink_to(f"{DATA}/{name}")
    if before is not None and before.is_dir() and before.name.startswith(".."):
        shutil.rmtree(before)
