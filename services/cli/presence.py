"""Which services of a data folder run under an `up`: each holds a lock there for as long as its process lives.

The kernel lets go of a lock when its holder ends, however it ends, so none is ever left behind. Two questions are answered
with it: whether an earlier `up` that was killed left services that still drain, and whether those that need a service have
ended, so that it may end, too. Imported by the command's modules only.
"""

import fcntl
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from services.cli.failure import CommandError

_LOOK_EVERY_S = 0.1


def hold(data_dir: Path, service: str) -> None:
    """Hold a service's lock until this process ends. CommandError if the folder cannot be used."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Never closed: the process's end does that.
        descriptor = os.open(_path(data_dir, service), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Shared, because there may be several edges; whoever looks has it for an instant only.
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        raise CommandError(f"data_dir {data_dir} cannot be used: {error.strerror}") from None


def holder(data_dir: Path, service: str) -> str | None:
    """The process that holds a service's lock, `unknown` if it did not say; None if none does."""
    try:
        descriptor = os.open(_path(data_dir, service), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
    finally:
        os.close(descriptor)
    return None


def left_behind(data_dir: Path, services: Sequence[str]) -> list[str]:
    """A sentence for each service that still runs. Asked by an `up` that has the folder: theirs is gone."""
    found = ((service, holder(data_dir, service)) for service in services)
    return [
        f"a previous {service} of this data_dir ({data_dir.absolute()}) is still draining (process {pid});"
        " try again when it has ended"
        for service, pid in found
        if pid is not None
    ]


def wait_until_gone(data_dir: Path, service: str, at_most_s: float) -> bool:
    """Wait until nobody holds a service's lock; False if somebody still does after `at_most_s`."""
    end = time.monotonic() + at_most_s
    looks = threading.Event()
    while holder(data_dir, service) is not None:
        if time.monotonic() >= end:
            return False
        looks.wait(_LOOK_EVERY_S)
    return True


def _path(data_dir: Path, service: str) -> Path:
    return data_dir / f"{service}.lock"
