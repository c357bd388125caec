"""What a container of a compose file is, as a process without Docker: its command, environment, user, files and network.

Its root is read-only and has what an image would bring (this machine's programs, our code) and its volumes at the paths that
the file says; it has no capability. It must be started by a thread that stays, since it ends with that.
"""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.harness.compose import ROOT
from tests.harness.hosts import Host

END_WITHIN_S = 30.0
COMMAND_S = 60.0
_SYSTEM = ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64")
_PASSWD = "root:x:0:0::/:/bin/sh\npostgres:x:999:999::/:/bin/sh\nspeedinfer:x:10001:10001::/:/bin/sh\n"
_GROUP = "root:x:0:\npostgres:x:999:\nspeedinfer:x:10001:\n"


@dataclass(frozen=True)
class Mount:
    """A folder or file of this machine at a path of the container."""

    source: Path
    target: str
    read_only: bool


@dataclass(frozen=True)
class Box:
    """All of a container but its command."""

    name: str
    # None: nobody is reached.
    host: Host | None
    user: int
    environment: Mapping[str, str]
    mounts: Sequence[Mount]
    tmpfs: Sequence[str]
    working_directory: str
    # Files of this deployment: the root's mount point, passwd, hosts.
    folder: Path

    def command(self, words: Sequence[str]) -> list[str]:
        """What runs a command in it, and becomes it. The caller is root."""
        root = self.folder / "root"
        words = [
            *("chroot", str(root), "env", "-C", self.working_directory),
            *("setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", "--no-new-privs"),
            *("--bounding-set=-all", "--inh-caps=-all", "--pdeathsig=KILL"),
            *words,
        ]
        script = "\n".join(["set -e", *self._mounts(str(root)), f"exec {shlex.join(words)}"])
        inside = ["unshare", "--mount", "--propagation=private", "sh", "-c", script]
        return self.host.command(*inside) if self.host else ["unshare", "--net", *inside]

    def run(self, words: Sequence[str], stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, as `docker compose exec` does."""
        return subprocess.run(
            self.command(words),
            env=dict(self.environment),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )

    def _mounts(self, root: str) -> list[str]:
        def bind(source: str | Path, target: str, read_only: bool = True) -> str:
            place = shlex.quote(root + target)
            made = f"mkdir -p {place}" if Path(source).is_dir() else f"mkdir -p $(dirname {place}) && touch {place}"
            return f"[ -e {place} ] || {{ {made}; }}\nmount --bind{' -o ro' * read_only} {shlex.quote(str(source))} {place}"

        lines = [f"mkdir -p {shlex.quote(root)}", f"mount -t tmpfs -o mode=755 root {shlex.quote(root)}"]
        for path in map(Path, _SYSTEM):
            if path.is_symlink():
                lines.append(f"ln -s {os.readlink(path)} {shlex.quote(root + str(path))}")
            elif path.is_dir():
                lines.append(bind(path, str(path)))
        lines.append(
            f"mkdir {root}/dev {root}/proc && mount --rbind /dev {root}/dev && mount --rbind /proc {root}/proc"
        )
        # Before our code, which may be below one of them.
        lines += [f"mkdir -p {root}{path} && mount -t tmpfs -o mode=1777 tmpfs {root}{path}" for path in self.tmpfs]
        lines += [bind(path, str(path)) for path in (Path(sys.base_prefix), ROOT, Path(sys.prefix).resolve())]
        lines.append(bind(Path(sys.prefix).resolve(), "/app"))
        lines += [bind(self.folder / name, f"/etc/{name}") for name in ("passwd", "group", "hosts")]
        lines += [bind(each.source, each.target, each.read_only) for each in self.mounts]
        return [*lines, f"mkdir -p {root}{self.working_directory}", f"mount -o remount,ro {shlex.quote(root)}"]


def write_image(folder: Path, addresses: Mapping[str, str]) -> None:
    """What every container's `etc` has of its own: users, and each other's names."""
    hosts = "".join(f"{address} {name}\n" for name, address in addresses.items())
    files = {"passwd": _PASSWD, "group": _GROUP, "hosts": f"127.0.0.1 localhost\n{hosts}"}
    for name, text in files.items():
        (folder / name).write_text(text)


class Container:
    """A command that runs in a box, and is started again where its restart policy says so."""

    def __init__(self, box: Box, words: Sequence[str], restart: str, grace_s: float) -> None:
        self.box = box
        self._words = words
        self._restart = restart
        self._grace_s = grace_s
        self._process: subprocess.Popen[bytes] | None = None
        # How often it was started.
        self.starts = 0

    @property
    def log(self) -> Path:
        """What it writes."""
        return self.box.folder / f"{self.box.name}.log"

    def start(self) -> None:
        """Start it."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.box.command(self._words),
                env=dict(self.box.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.starts += 1

    def finish(self) -> None:
        """Wait for the end of what runs once; AssertionError if it failed."""
        assert self._process is not None
        code = self._process.wait(COMMAND_S)
        assert code == 0, f"{self.box.name} ended with {code}:\n{self.tail()}"

    def tend(self) -> None:
        """Start it again if it has ended by itself and its policy is to."""
        assert self._process is not None
        if self._process.poll() is not None and self._restart == "unless-stopped":
            self.start()

    @property
    def runs(self) -> bool:
        """Whether it does."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM and what it gets before SIGKILL; its exit code."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(min(self._grace_s, END_WITHIN_S))
            except subprocess.TimeoutExpired:
                self.kill()
        return self._process.returncode

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3000:]
