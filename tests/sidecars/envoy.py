"""A real Envoy as a process, from the wheel, with a configuration that `speedinfer sidecar` has written."""

import ctypes
import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from services.cli.sidecar import FOLDERS
from tests.harness import command_line
from tests.harness.until import until

BINARY = Path(sys.prefix) / "bin" / "envoy"
READY_WITHIN_S = 30.0
END_WITHIN_S = 10.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Envoy:
    """`with Envoy(folder, "edge", environment) as envoy:` gives one that is ready. `environment` holds the settings."""

    def __init__(self, folder: Path, whose: str, environment: Mapping[str, str], templates: Path = FOLDERS[0]) -> None:
        self.folder = folder
        self._templates = templates
        self._whose = whose
        self._environment = environment
        self._admin = environment["SPEEDINFER_SIDECAR__ADMIN_LISTEN"]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Envoy":
        self.write()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def configuration(self) -> Path:
        """Its bootstrap."""
        return self.folder / "envoy.yaml"

    @property
    def log(self) -> Path:
        """What it writes: its own words, and a line of JSON for each request."""
        return self.folder / "envoy.log"

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None, "not started"
        return self._process.pid

    def write(self) -> None:
        """Have the command write the configuration."""
        arguments = ["sidecar", self._whose, "--output", str(self.folder), "--templates", str(self._templates)]
        code, _, errors = command_line.run(arguments, None, dict(self._environment))
        assert code == 0, errors

    def start(self) -> None:
        """Start it and wait until it is ready."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(str(BINARY), "-c", str(self.configuration), "--disable-hot-restart", "--concurrency", "1"),
                    *("--file-flush-interval-msec", "100"),
                ],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                # It must not outlive a run that is killed.
                preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
            )
        until(self._is_ready, f"the {self._whose}'s Envoy is ready", READY_WITHIN_S)

    def stop(self) -> None:
        """End it, whatever it does."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """kill -9."""
        process, self._process = self._process, None
        assert process is not None, "not started"
        process.kill()
        process.wait()

    def statistic(self, name: str) -> int:
        """One of its counters or gauges; 0 if it has not been touched."""
        text = self._ask(f"/stats?filter=^{name}$")
        return int(text.rpartition(":")[2] or 0)

    def requests(self) -> list[dict[str, Any]]:
        """The access log's lines so far."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def _is_ready(self) -> bool:
        assert self._process is not None, "not started"
        assert self._process.poll() is None, f"{self._whose}'s Envoy ended:\n{self.log.read_text()[-3000:]}"
        try:
            return self._ask("/ready").startswith("LIVE")
        except OSError:
            return False

    def _ask(self, path: str) -> str:
        connection = http.client.HTTPConnection(self._admin, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode().strip()
        finally:
            connection.close()


def validate(configuration: Path) -> str:
    """What Envoy has against a configuration, its warnings included; nothing if it takes it."""
    done = subprocess.run(
        [str(BINARY), "--mode", "validate", "-c", str(configuration), "-l", "warning", "--disable-hot-restart"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    warnings = [line for line in done.stderr.splitlines() if "][warning]" in line or "][error]" in line]
    if done.returncode:
        warnings.append(f"exit code {done.returncode}: {done.stderr[-2000:]} {done.stdout[-500:]}")
    return "\n".join(warnings)
