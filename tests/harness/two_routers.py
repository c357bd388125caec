"""A product with a second router: another process with workers of its own, which tests stop and wake."""

import json
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

from tests.blackbox.conftest import PreparedProduct
from tests.harness.ports import free_port
from tests.harness.upstream import Upstream

FIRST, SECOND = "router", "router b"


class TwoRouters(PreparedProduct):
    """Both routers have a registration of the scripted worker; the edge knows both."""

    def __init__(self, folder: Path, upstream: Upstream, release: Path | None = None) -> None:
        """`release`: where the packages are of which the second router runs."""
        second = f"127.0.0.1:{free_port()}"
        super().__init__(folder, upstream, None)
        self.ports |= {SECOND: int(second.rpartition(":")[2]), f"{SECOND} metrics": free_port()}
        self.environment["SPEEDINFER_EDGE__ROUTER_TARGET"] = f"{self.address(FIRST)},{self.address(SECOND)}"
        self._release = release

    def __enter__(self) -> "TwoRouters":
        super().__enter__()
        try:
            other = Path(self.environment_of(SECOND)["SPEEDINFER_DATA_DIR"])
            other.mkdir()
            # Operators have one token for all.
            shutil.copy2(self.data_dir / "admin_token", other)
            self.start(SECOND)
            self.command(
                "workers",
                "register",
                "-",
                stdin=json.dumps(self._upstream.registration("scripted-b")),
                settings={"SPEEDINFER_EDGE__ROUTER_TARGET": self.address(SECOND)},
            )
        except BaseException:
            self.close()
            raise
        return self

    def environment_of(self, name: str) -> Mapping[str, str]:
        """See Product."""
        if name != SECOND:
            return super().environment_of(name)
        own = {
            "SPEEDINFER_DATA_DIR": str(self.folder / "data-b"),
            "SPEEDINFER_ROUTER__LISTEN": self.address(SECOND),
            "SPEEDINFER_ROUTER__METRICS_LISTEN": self.address(f"{SECOND} metrics"),
        }
        if self._release is not None:
            own["PYTHONPATH"] = str(self._release)
        return {**self.environment, **own}

    def send(self, name: str, number: signal.Signals) -> None:
        """A signal to a service."""
        self._processes[name].send_signal(number)

    def close(self) -> None:
        """See Product; one that stands still could not end."""
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        super().close()
