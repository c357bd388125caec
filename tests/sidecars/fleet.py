"""Two of everything, each on a host of its own behind its own Envoy, as `deploy/` has it: edges, routers and billing instances,
with one PostgreSQL, one worker, and an operator's machine, from which clients come as well.

Hosts are network namespaces, so that every process has the ports that it has in a real deployment, and what stands between two
hosts can be taken away.
"""

import asyncio
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from services.cli import readiness
from tests.harness.deployed import FINANCE, OPERATOR
from tests.harness.hosts import Host, Hosts
from tests.harness.until import until
from tests.harness.upstream import MODEL, Upstream
from tests.sidecars.envoy import Envoy
from tests.sidecars.mesh import certificates, empty
from tests.sidecars.serial import shown
from tests.sidecars.store import Store

Result = TypeVar("Result")
EDGES, ROUTERS, BILLINGS = ("edge-1", "edge-2"), ("router-1", "router-2"), ("billing-1", "billing-2")
SERVICES = (*BILLINGS, *ROUTERS, *EDGES)
OUTBOUND = {"router": ("127.0.0.1:6151", "127.0.0.1:6152"), "billing": ("127.0.0.1:6251", "127.0.0.1:6252")}
INBOUND, PUBLIC, ADMIN = 15051, 8443, "127.0.0.1:9901"
LISTEN = {"edge": "127.0.0.1:8080", "router": "127.0.0.1:50051", "billing": "127.0.0.1:50052"}
PRICE = ("0.20", "0.60")
END_WITHIN_S = 30.0
TOKEN = "an-operator-s-token-for-tests-only-0123456789"
# Processes end with the thread that started them; this one lives as long as the run.
_starter = ThreadPoolExecutor(1, "starts processes")


class HostedEnvoy(Envoy):
    """An Envoy on a host of its own."""

    def __init__(self, host: Host, folder: Path, whose: str, environment: Mapping[str, str]) -> None:
        super().__init__(folder, whose, environment)
        self._host = host

    def start(self) -> None:
        """See Envoy."""
        _starter.submit(self._start).result()

    def _start(self) -> None:
        with self._host.entered():
            super().start()

    def statistic(self, name: str) -> int:
        """See Envoy."""
        with self._host.entered():
            return super().statistic(name)


class HostedUpstream(Upstream):
    """A worker on a host of its own."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host
        self.listens_on = host.address

    def _run(self) -> None:
        with self._host.entered():
            super()._run()


class Instance:
    """A service and its sidecar on one host."""

    def __init__(self, name: str, host: Host, folder: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.service = name.partition("-")[0]
        self.host = host
        self.folder = folder
        self.environment = environment
        self.envoy = HostedEnvoy(host, folder / "sidecar", self.service, environment)
        self._process: subprocess.Popen[bytes] | None = None
        # Where the log of the process that runs now begins.
        self._log_from = 0

    @property
    def log(self) -> Path:
        """What the service writes."""
        return self.folder / "log"

    def start(self) -> None:
        """Start the service; see `is_ready`."""
        assert self._process is None or self._process.poll() is not None, f"{self.name} runs"
        self._process = _starter.submit(self._start).result()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.host.entered(), self.log.open("ab") as log:
            self._log_from = log.tell()
            return subprocess.Popen(
                [sys.executable, "-m", "services.cli.main", self.service, "--with-parent", str(os.getpid())],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def is_ready(self) -> bool:
        """Whether it serves."""
        assert self._process is not None
        assert self._process.poll() is None, f"{self.name} ended:\n{self.tail()}"
        if self.service != "edge":
            # gRPC's own threads would ask on another host.
            said = self.log.read_bytes()[self._log_from :]
            return b'"event": "serving"' in said or b'"event": "listening"' in said
        with self.host.entered():
            return readiness.edge_ready(LISTEN["edge"]).ready

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM, and wait for its drain; the exit code."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return -9

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3000:]

    def close(self) -> None:
        """End both, however."""
        if self._process is not None and self._process.poll() is None:
            self.stop()
        self.envoy.stop()


class Fleet:
    """`with Fleet(folder) as fleet:` gives all of it, ready, with a worker and a price."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()
        self.instances: dict[str, Instance] = {}

    def __enter__(self) -> "Fleet":
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def __getitem__(self, name: str) -> Instance:
        return self.instances[name]

    def _start(self) -> None:
        self.hosts = self._stack.enter_context(Hosts(*SERVICES, "store", "worker", "operator"))
        self.store = self._stack.enter_context(Store(self.hosts["store"]))
        self.worker = self._stack.enter_context(HostedUpstream(self.hosts["worker"]))
        names = [word for name in EDGES for word in ("--public-name", self.hosts[name].address)]
        self.certificates = certificates(self.folder / "certificates", "make", *names)
        # Those who only call: operators, and finance, who reads the books; on one machine, at addresses of their own.
        self.callers = {name: self._environment(name, "operator") for name in (OPERATOR, FINANCE)}
        self.callers[FINANCE] = {
            name: text.replace("127.0.0.1", "127.0.0.2") for name, text in self.callers[FINANCE].items()
        }
        sidecars = [
            HostedEnvoy(self.hosts["operator"], self.folder / name, name, environment)
            for name, environment in self.callers.items()
        ]
        for name in SERVICES:
            self.instances[name] = Instance(name, self.hosts[name], self.folder / name, self._environment(name, name))
            self._stack.callback(self.instances[name].close)
        for each in self.instances.values():
            each.envoy.__enter__()
            each.start()
        for sidecar in sidecars:
            self._stack.enter_context(sidecar)
        self.until_ready(*SERVICES)
        self.register()
        self.command("prices", "set", MODEL, "--prompt", PRICE[0], "--completion", PRICE[1])

    def register(self) -> None:
        """Make the worker the one of its name."""
        done = self.command("workers", "register", "-", stdin=json.dumps(self.worker.registration()))
        assert done["status"] == "healthy", done

    def _environment(self, name: str, host: str) -> dict[str, str]:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        own = {key: value for key, value in os.environ.items() if not key.startswith("SPEEDINFER_")}
        address = self.hosts[host].address
        return own | {
            "SPEEDINFER_CONFIG": str(empty(folder)),
            "SPEEDINFER_DATA_DIR": str(folder / "data"),
            "SPEEDINFER_ADMIN_TOKEN": TOKEN,
            "SPEEDINFER_EDGE__LISTEN": LISTEN["edge"],
            "SPEEDINFER_EDGE__ROUTER_TARGET": ",".join(OUTBOUND["router"]),
            "SPEEDINFER_EDGE__BILLING_TARGET": ",".join(OUTBOUND["billing"]),
            "SPEEDINFER_ROUTER__LISTEN": LISTEN["router"],
            "SPEEDINFER_ROUTER__DATABASE": self.store.url("registry"),
            "SPEEDINFER_BILLING__LISTEN": LISTEN["billing"],
            "SPEEDINFER_BILLING__DATABASE": self.store.url("ledger"),
            "SPEEDINFER_SIDECAR__CERTIFICATES": str(self.certificates),
            "SPEEDINFER_SIDECAR__LISTEN": f"{address}:{INBOUND}",
            "SPEEDINFER_SIDECAR__PUBLIC_LISTEN": f"{address}:{PUBLIC}",
            "SPEEDINFER_SIDECAR__ADMIN_LISTEN": ADMIN,
            "SPEEDINFER_SIDECAR__ROUTERS": ",".join(f"{self.hosts[each].address}:{INBOUND}" for each in ROUTERS),
            "SPEEDINFER_SIDECAR__BILLINGS": ",".join(f"{self.hosts[each].address}:{INBOUND}" for each in BILLINGS),
        }

    def until_ready(self, *names: str) -> None:
        """Wait until services serve."""
        for name in names:
            until(self.instances[name].is_ready, f"{name} is ready", 90)

    def command(self, *arguments: str, stdin: str | None = None, whose: str = OPERATOR) -> Any:
        """Run the command on the operator's machine, through the operator's sidecar there or finance's; its value."""
        with self.hosts["operator"].entered():
            done = subprocess.run(
                [sys.executable, "-m", "services.cli.main", *arguments, "--json"],
                env=self.callers[whose],
                cwd=self.folder / whose,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
        assert done.returncode == 0, f"speedinfer {' '.join(arguments)}: {done.stderr}"
        return json.loads(done.stdout)

    def urls(self) -> list[str]:
        """Where clients come in."""
        return [f"https://{self.hosts[name].address}:{PUBLIC}" for name in EDGES]

    @property
    def authority(self) -> Path:
        """The CA of the edges' certificates."""
        return self.certificates / "ca" / "tls.crt"

    def rotate(self) -> None:
        """Make everybody's certificate anew, while all of it runs."""
        certificates(self.folder / "certificates", "renew")

    def serials(self) -> set[str]:
        """The serial numbers of the certificates that the sidecars show now, at every door."""
        places = [
            f"{each.host.address}:{port}"
            for each in self.instances.values()
            for port in ((PUBLIC,) if each.service == "edge" else (INBOUND,))
        ]
        with self.hosts["operator"].entered():
            return {shown(place, self.authority, self.certificates / "edge") for place in places}

    def trust(self) -> ssl.SSLContext:
        """Trusts that and nobody else."""
        return ssl.create_default_context(cafile=str(self.authority))

    def from_outside(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run a coroutine on the operator's machine, as a client; on a loop and a thread of its own."""

        def run() -> Result:
            with self.hosts["operator"].entered():
                return asyncio.run(_await(work))

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(run).result()


async def _await(work: Callable[[], Awaitable[Result]]) -> Result:
    return await work()
