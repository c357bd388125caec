"""The deployment on loopback addresses: each service with its Envoy, every call between them through mutual TLS.

Each sidecar stands at an address of its own (127.0.1.x), the services at 127.0.0.1. Commands go through an operator's sidecar,
as an operator's do.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from services.cli.sidecar import FOLDERS
from tests.harness import command_line
from tests.harness.ports import free_port
from tests.harness.product import NAMES, Product
from tests.harness.until import until
from tests.harness.upstream import MODEL, Upstream
from tests.sidecars.envoy import Envoy

HOSTS = {"edge": "127.0.1.1", "router": "127.0.1.2", "billing": "127.0.1.3", "operator": "127.0.1.4"}


def certificates(folder: Path, *options: str) -> Path:
    """A CA and all identities; the folder that they are in."""
    environment = {"SPEEDINFER_SIDECAR__CERTIFICATES": str(folder), "SPEEDINFER_CONFIG": str(empty(folder.parent))}
    code, _, errors = command_line.run(["certs", *(options or ("make",))], None, environment)
    assert code == 0, errors
    return folder


def empty(folder: Path) -> Path:
    """A settings file with nothing in it, so that none of the current folder is read."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "empty.toml"
    path.touch()
    return path


def short_lived_connections(folder: Path) -> Path:
    """The templates as they are delivered, but for the age of connections between services: a second for half an hour, so
    that whatever runs here runs over the end of some."""
    shutil.copytree(FOLDERS[0], folder)
    pieces = folder / "pieces.yaml"
    text = pieces.read_text()
    assert text.count("max_connection_duration: 1800s") == 1
    pieces.write_text(text.replace("max_connection_duration: 1800s", "max_connection_duration: 1s"))
    return folder


class Mesh(Product):
    """`with Mesh(folder, upstream) as mesh:` gives three services and four Envoys that are ready, a worker and a price."""

    def __init__(
        self,
        folder: Path,
        upstream: Upstream | None,
        settings: Mapping[str, str] | None = None,
        templates: Path | None = None,
    ) -> None:
        """Without `upstream` no worker is there. `templates` of the sidecars; without, those with short connections."""
        super().__init__(folder, settings)
        self._upstream = upstream
        self.certificates = certificates(folder / "certificates", "make", "--public-name", HOSTS["edge"])
        self.inbound = {name: f"{HOSTS[name]}:{free_port()}" for name in ("router", "billing")}
        self.public = f"{HOSTS['edge']}:{free_port()}"
        # Where Prometheus reads.
        self.observed = {name: f"{host}:{free_port()}" for name, host in HOSTS.items()}
        # Where a caller finds the others, on its own machine.
        local = {
            whose: {name: f"127.0.0.1:{free_port()}" for name in ("router", "billing")}
            for whose in ("edge", "operator")
        }
        own = {name: f"127.0.0.1:{free_port()}" for name in HOSTS}
        self._environments = {
            name: self.environment
            | {
                "SPEEDINFER_EDGE__ROUTER_TARGET": local["edge" if name == "edge" else "operator"]["router"],
                "SPEEDINFER_EDGE__BILLING_TARGET": local["edge" if name == "edge" else "operator"]["billing"],
                "SPEEDINFER_SIDECAR__CERTIFICATES": str(self.certificates),
                "SPEEDINFER_SIDECAR__LISTEN": self.inbound.get(name, "127.0.0.1:0"),
                "SPEEDINFER_SIDECAR__PUBLIC_LISTEN": self.public,
                "SPEEDINFER_SIDECAR__ADMIN_LISTEN": own[name],
                "SPEEDINFER_SIDECAR__OBSERVED_LISTEN": self.observed[name],
                "SPEEDINFER_SIDECAR__ROUTERS": self.inbound["router"],
                "SPEEDINFER_SIDECAR__BILLINGS": self.inbound["billing"],
            }
            for name in HOSTS
        }
        # The command's.
        self.environment = self._environments["operator"]
        templates = templates or short_lived_connections(folder / "templates")
        self.envoys = {
            name: Envoy(folder / f"{name}-sidecar", name, environment, templates)
            for name, environment in self._environments.items()
        }

    def __enter__(self) -> "Mesh":
        try:
            for envoy in self.envoys.values():
                envoy.__enter__()
            self.start(*NAMES)
            until(self._operator_finds_them, "the operator's sidecar sees the services healthy")
            if self._upstream:
                assert self.register(self._upstream.registration())["status"] == "healthy"
                self.price(MODEL)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        for envoy in self.envoys.values():
            envoy.stop()

    def address(self, name: str) -> str:
        """See Product: billing is at a Unix socket, the others on loopback, so that a sidecar is tried before either."""
        return f"unix:{self.folder / 'billing.sock'}" if name == "billing" else super().address(name)

    def environment_of(self, name: str) -> Mapping[str, str]:
        """See Product."""
        return self._environments[name]

    def _operator_finds_them(self) -> bool:
        found = [self.envoys["operator"].statistic(f"cluster.{name}-1.membership_healthy") for name in self.inbound]
        return all(found)

    @property
    def public_url(self) -> str:
        """The edge's sidecar, where clients come in."""
        return f"https://{self.public}"

    @property
    def authority(self) -> Path:
        """The CA's certificate."""
        return self.certificates / "ca" / "tls.crt"
