"""Runs what `make run` runs, on ports and in a folder of the test's own, and reads what it prints."""

import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from demo.run_install import ROOT
from tests.harness.product import Product
from tests.harness.until import until


class DemoRun:
    """`with DemoRun(product, demo=False) as run:`; the product gives the settings and is not started itself."""

    def __init__(self, product: Product, *, demo: bool) -> None:
        self._product = product
        self._file = product.folder / "run.out"
        # It shows the demo's key.
        self._file.touch(0o600)
        # As from a shell: not under make, whose recipes end with it.
        self._environment = {name: value for name, value in product.environment.items() if name != "MAKELEVEL"}
        self._environment |= {"DEMO": "1" if demo else "0"}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "DemoRun":
        with self._file.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(ROOT / "demo" / "run.py")],
                env=self._environment,
                cwd=self._product.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(signal.SIGTERM)

    @property
    def said(self) -> str:
        """Everything that was printed up to now."""
        return self._file.read_text()

    def wait_for(self, text: str, timeout_s: float = 60.0) -> None:
        """Wait until it has printed `text`. AssertionError if it ends instead."""

        def look() -> bool:
            assert self._process is not None
            ended = self._process.poll() is not None
            if text in self.said:
                return True
            assert not ended, f"it ended without saying {text!r}:\n{self.said}"
            return False

        until(look, f"make run says {text!r}", timeout_s)

    def ended(self, timeout_s: float = 60.0) -> int:
        """Wait until it ends by itself; its exit code."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def stop(self, number: signal.Signals) -> int:
        """Send a signal and wait; its exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
        return self._process.wait(90)

    @property
    def folder(self) -> Path:
        """Where it keeps its data."""
        return self._product.data_dir
