"""Restores that are killed before every touch of the file system, each in a process forked from one that has imported all.

`python -m tests.ledger.restorer` reads one order a line: the ledger's place, the copy, and before which touch to die. It
answers what the process came to and how far it got. `Restorer` is the test's side.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.billing.store import open as stores

# What Python is asked before it does any of them; `fsync` is not among them and changes no name.
TOUCHES = ("open", "os.link", "os.rename", "os.remove", "sqlite3.connect")
NOW_MS = 1_800_000_000_000


class Death:
    """Ends this process before it touches the ledger's folder for the so-manieth time."""

    def __init__(self, order: dict[str, Any], told: int) -> None:
        self._folder, self._left = str(Path(order["database"]).parent), order["touch"]
        self._drafts, self._told = order["drafts"], told

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in TOUCHES or self._folder not in str(arguments[0]):
            return
        name = Path(str(arguments[0])).name
        # What is beside a draft goes in one loop with it.
        if (
            name.startswith(".")
            and event != "os.rename"
            and (not self._drafts or name.endswith(("-wal", "-shm", "-journal")))
        ):
            return
        self._left -= 1
        if not self._left:
            names = [Path(str(one)).name for one in arguments if self._folder in str(one)]
            os.write(self._told, " ".join([event, *names]).encode())
            os.kill(os.getpid(), signal.SIGKILL)


def _restore(order: dict[str, Any], told: int) -> None:
    database = Path(order["database"])
    sys.addaudithook(Death(order, told).hook)
    stores.restore(f"sqlite:///{database}", Path(order["copy"]), lambda: NOW_MS, lambda _: None, replace=True)


def main() -> None:
    for line in sys.stdin:
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            code = 1
            try:
                _restore(json.loads(line), write)
                code = 0
            finally:
                os._exit(code)
        os.close(write)
        with os.fdopen(read) as pipe:
            step = pipe.read()
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status), "step": step}), flush=True)


@dataclass
class Restorer:
    """Makes one restore after another."""

    _process: "subprocess.Popen[str]"

    def restore(self, database: Path, copy: Path, touch: int, *, drafts: bool = True) -> str:
        """Before what it was killed; nothing where it came to its end first. Touches of drafts count, or do not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"database": str(database), "copy": str(copy), "touch": touch, "drafts": drafts}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        assert told["code"] == (-signal.SIGKILL if told["step"] else 0), told
        return str(told["step"])


@contextmanager
def restorer() -> Iterator[Restorer]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.ledger.restorer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Restorer(process)
    assert process.returncode == 0


if __name__ == "__main__":
    main()
