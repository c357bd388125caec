"""The real product for black-box tests: the three services as processes, in a folder of their own, on free ports.

Everything goes through what a user has: the `speedinfer` command, HTTP and gRPC.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
import httpx

from services.cli import readiness
from tests.harness import canaries, command_line, http_client
from tests.harness.ports import free_port
from tests.harness.remains import Remains
from tests.harness.until import until

NAMES = ("billing", "router", "edge")
END_WITHIN_S = 30.0
COMMAND_TIMEOUT_S = 120.0
# What every product of this run left; searched at its end (tests/conftest.py).
MADE: list[Remains] = []
# Services end with the thread that started them (services/cli/lifeline.py); this one lives as long as the process.
_starter = ThreadPoolExecutor(1, "starts services")


@dataclass(frozen=True)
class Completed:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON value on standard output."""
        return json.loads(self.out)


class Product:
    """`with Product(folder) as product:` gives three services that are ready."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are further environment variables, such as SPEEDINFER_EDGE__LIMITS__MAX_BODY_BYTES."""
        self.folder = folder
        self.data_dir = folder / "data"
        self.ports = {name: free_port() for name in (*NAMES, "admin", "router metrics", "billing metrics")}
        # Nothing of the caller's own settings may come in.
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("SPEEDINFER_")}
        self.environment |= {
            "SPEEDINFER_DATA_DIR": str(self.data_dir),
            "SPEEDINFER_EDGE__LISTEN": self.address("edge"),
            "SPEEDINFER_EDGE__ADMIN_LISTEN": self.address("admin"),
            "SPEEDINFER_ROUTER__LISTEN": self.address("router"),
            "SPEEDINFER_ROUTER__METRICS_LISTEN": self.address("router metrics"),
            "SPEEDINFER_BILLING__LISTEN": self.address("billing"),
            "SPEEDINFER_BILLING__METRICS_LISTEN": self.address("billing metrics"),
            # Everything that a log may ever hold is searched for canaries.
            "SPEEDINFER_LOG_LEVEL": "debug",
            # An empty file of our own, so that no speedinfer.toml in the current folder is read.
            "SPEEDINFER_CONFIG": str(folder / "empty.toml"),
            **(settings or {}),
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "empty.toml").touch()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # Those that were succeeded: they end by themselves when nobody needs them any more.
        self._former: list[subprocess.Popen[bytes]] = []
        # What it leaves and shows; searched for canaries at the end of the run.
        self.remains = Remains(folder, self.data_dir)
        # Of clients of `url`: nobody, since it is plain HTTP here.
        self.trust = http_client.NO_CERTIFICATES
        MADE.append(self.remains)

    def __enter__(self) -> "Product":
        try:
            self.start(*NAMES)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def address(self, name: str) -> str:
        """Where a service listens; `admin` is the edge's other listener."""
        return f"127.0.0.1:{self.ports[name]}"

    @property
    def url(self) -> str:
        """The edge."""
        return f"http://{self.address('edge')}"

    @property
    def base_url(self) -> str:
        """What an OpenAI SDK is given."""
        return f"{self.url}/v1"

    @property
    def admin_token(self) -> str:
        """The operators' token, as billing or the router made it."""
        return (self.data_dir / "admin_token").read_text().strip()

    def client(self, **settings: Any) -> httpx.AsyncClient:
        """A client of `url`."""
        return httpx.AsyncClient(base_url=self.url, verify=self.trust, **settings)

    def pid(self, name: str) -> int:
        """The process of a service."""
        return self._processes[name].pid

    def start(self, *names: str, options: Sequence[str] = ()) -> None:
        """Start services that do not run, all at once, and wait until each is ready."""
        for name in names:
            self._processes[name] = _starter.submit(self._spawn, name, *options).result()
        for name in names:
            until(lambda name=name: self._is_ready(name), f"{name} is ready", 60)  # type: ignore[misc]

    def environment_of(self, _name: str) -> Mapping[str, str]:
        """What a service is started with; a product whose services differ answers each its own."""
        return self.environment

    def succeed(self, name: str) -> subprocess.Popen[bytes]:
        """Start a successor of a service and wait until it has taken over; answers the old process, which may live on."""
        old = self._processes[name]
        self._former.append(old)
        self._processes[name] = _starter.submit(self._spawn, name, "--take-over").result()
        until(lambda: self._took_over(name, old.pid) and self._is_ready(name), f"{name} is succeeded", 60)
        return old

    def _took_over(self, name: str, pid: int) -> bool:
        # Found in the text, since two processes that write to one file may share a line.
        return f'{{"predecessor": {pid}, "event": "took_over"' in self.log(name).read_text()

    def _spawn(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        # "router b" is a router.
        command = name.split()[0]
        with self.log(name).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "services.cli.main", command, *options, "--with-parent", str(os.getpid())],
                env=self.environment_of(name),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """kill -9, and wait until it is gone."""
        self._processes[name].send_signal(signal.SIGKILL)
        self._processes.pop(name).wait()

    def stop(self, name: str) -> int:
        """SIGTERM, and wait; answers the exit code."""
        self.look()
        process = self._processes.pop(name)
        process.terminate()
        try:
            return process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"{name} did not end within {END_WITHIN_S} s:\n{self.tail(name)}") from None

    def restart(self, name: str) -> None:
        """Stop and start one service."""
        assert self.stop(name) == 0, self.tail(name)
        self.start(name)

    def close(self) -> None:
        """End whatever runs; never raises for a service that ended badly."""
        self.look()
        others = [name for name in self._processes if name not in NAMES]
        running = [self._processes.pop(name, None) for name in [*reversed(NAMES), *others]]
        former, self._former = self._former, []
        for process in [*running, *former]:
            if process is not None and process.poll() is None:
                process.terminate()
                try:
                    process.wait(END_WITHIN_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def look(self) -> None:
        """Note what the running services show of themselves; called before one is stopped."""
        for name, process in self._processes.items():
            if process.poll() is None:
                self.remains.look_at_process(name, process.pid)
                self.remains.look_at_log_of_writes()
                self.remains.look_at_metrics(name, self.address("admin" if name == "edge" else f"{name} metrics"))

    def log(self, name: str) -> Path:
        """The file that a service writes to."""
        return self.folder / f"{name}.log"

    def tail(self, name: str, lines: int = 30) -> str:
        """The end of it."""
        return "\n".join(self.log(name).read_text(errors="replace").splitlines()[-lines:])

    def run(self, *arguments: str, stdin: str | None = None, settings: Mapping[str, str] | None = None) -> Completed:
        """Run the command in a process of its own, whatever it comes to; with `settings` beside the product's own."""
        done = subprocess.run(
            [sys.executable, "-m", "services.cli.main", *arguments],
            env={**self.environment, **(settings or {})},
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        return Completed(done.returncode, done.stdout, done.stderr)

    def command(self, *arguments: str, stdin: str | None = None, settings: Mapping[str, str] | None = None) -> Any:
        """Run the command with --json in this process, which is much faster; its value. AssertionError unless it exits 0."""
        environment: dict[str, str | None] = {name: None for name in os.environ if name.startswith("SPEEDINFER_")}
        own = {**self.environment, **(settings or {})}
        environment |= {name: value for name, value in own.items() if name.startswith("SPEEDINFER_")}
        code, output, errors = command_line.run([*arguments, "--json"], stdin, environment)
        assert code == 0, f"speedinfer {' '.join(arguments)}: {errors}"
        return json.loads(output)

    def account(self, credit: str = "10") -> str:
        """A new account; its id."""
        account_id: str = self.command("accounts", "create", "test", "--credit", credit)["account_id"]
        return account_id

    def key(self, account_id: str, *options: str) -> str:
        """A new key of an account; its text."""
        key: str = self.command("keys", "create", "--account", account_id, *options)["key"]
        canaries.KNOWN.add_key(key)
        return key

    def price(self, model: str, prompt: str = "0.20", completion: str = "0.60", *options: str) -> None:
        """Set a price in USD per million tokens."""
        self.command("prices", "set", model, "--prompt", prompt, "--completion", completion, *options)

    def register(self, registration: Mapping[str, Any]) -> dict[str, Any]:
        """Register a worker; what the command said of it."""
        self.know_secrets(registration)
        worker: dict[str, Any] = self.command("workers", "register", "-", stdin=json.dumps(registration))
        return worker

    @staticmethod
    def know_secrets(registration: Mapping[str, Any]) -> None:
        """Have a worker's credentials looked for at the end of the run."""
        config = registration.get("runtime_config", {})
        for secret in (config.get("api_key", ""), *config.get("headers", {}).values()):
            canaries.KNOWN.add(canaries.CREDENTIAL, secret)

    def worker(self, worker_id: str) -> dict[str, Any]:
        """One worker as operators see it."""
        found: dict[str, Any] = self.command("workers", "show", worker_id)
        return found

    def balance(self, account_id: str) -> dict[str, Any]:
        """An account's figures."""
        account: dict[str, Any] = self.command("accounts", "show", account_id)
        return account

    def entries(self, account_id: str) -> Sequence[dict[str, Any]]:
        """An account's legs of the ledger, newest last."""
        entries: Sequence[dict[str, Any]] = self.command("ledger", "list", "--account", account_id)
        return entries

    @contextmanager
    def billing(self) -> Iterator[grpc.Channel]:
        """A connection to billing."""
        with grpc.insecure_channel(self.address("billing")) as channel:
            yield channel

    def settled(self, account_id: str, timeout_s: float = 30.0) -> dict[str, Any]:
        """An account's figures once nothing of it is held any more."""
        return until(lambda: _unheld(self.balance(account_id)), "nothing is held", timeout_s)

    def _is_ready(self, name: str) -> bool:
        process = self._processes[name]
        assert process.poll() is None, f"{name} ended with status {process.returncode}:\n{self.tail(name)}"
        if name == "edge":
            return readiness.edge_ready(self.address("edge")).ready
        return readiness.grpc_health(self.address(name)).ready


def _unheld(account: dict[str, Any]) -> dict[str, Any] | None:
    return account if account["held"] == "0.000000000" else None
