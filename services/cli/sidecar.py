"""`speedinfer sidecar`: Envoy's configuration for the sidecar of one service, from the templates in `deploy/envoy/`.

It is filled from the settings that the service itself reads, so that a port or a bound is written once. Nothing secret is in
it: certificates and keys stay in their files, which Envoy reads.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

import jinja2
import orjson
import typer

from services.cli import observed
from services.cli.failure import CommandError
from services.cli.invocation import Invocation
from services.common import certificates
from services.common.listen import split, unix_path
from services.common.settings import Settings

# In a checkout beside the code, else where the package's data went.
FOLDERS = (
    Path(__file__).resolve().parents[2] / "deploy" / "envoy",
    Path(sys.prefix) / "share" / "speedinfer" / "envoy",
)
CONFIGURATION = "envoy.yaml"


class Sidecar(StrEnum):
    """Whose sidecar."""

    EDGE = "edge"
    ROUTER = "router"
    BILLING = "billing"
    OPERATOR = "operator"
    FINANCE = "finance"


@dataclass(frozen=True, slots=True)
class Peer:
    """One instance of a service that is called."""

    name: str
    service: str
    # Where it is found on this machine, and where its sidecar is.
    local: str
    remote: str


Whose = Annotated[Sidecar, typer.Argument(help="Whose sidecar; operator and finance only call others.")]
Output = Annotated[Path, typer.Option("--output", metavar="FOLDER", help="Where its files go.")]
Templates = Annotated[
    Path | None, typer.Option("--templates", metavar="FOLDER", help="Templates of your own instead of those delivered.")
]


def sidecar(
    invocation: Invocation, service: Whose, output: Output = Path("envoy"), templates: Templates = None
) -> None:
    """Write Envoy's configuration for a service's sidecar, from the settings of this machine."""
    written = render(invocation.settings(), service, output.absolute(), templates)
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, text in written.items():
            draft = output / f".{name}.draft"
            draft.write_text(text)
            draft.replace(output / name)
    except OSError as error:
        raise CommandError(f"{error.filename or output} cannot be written: {error.strerror}") from None
    path = output.absolute() / CONFIGURATION
    invocation.show({"configuration": str(path)}, lambda: f"written; start it with: envoy -c {path}")


def render(settings: Settings, service: Sidecar, folder: Path, templates: Path | None = None) -> dict[str, str]:
    """The files by name, as they are to lie in `folder`. CommandError if the settings do not say enough."""
    _refuse_open(settings, service)
    loader = jinja2.FileSystemLoader(templates or _templates())
    environment = jinja2.Environment(
        loader=loader,
        undefined=jinja2.StrictUndefined,
        # It is YAML, the templates are the operator's, and what fills them is our own settings.
        autoescape=False,  # noqa: S701
        keep_trailing_newline=True,
    )
    known: dict[str, Any] = {
        "settings": settings,
        "service": str(service),
        "identities": certificates.IDENTITIES,
        "identity": lambda name: certificates.identity(settings.sidecar.trust_domain, name),
        "peers": _peers(settings, service),
        "pages": observed.pages(settings, service),
        "files": str(folder),
        "socket": _socket,
        "is_literal": _is_literal,
        "seconds": _seconds,
    }
    kept = settings.certificates_path.absolute()
    own = {"folder": str(kept / service)}
    caller = service in (Sidecar.OPERATOR, Sidecar.FINANCE)
    wanted: dict[str, tuple[str, dict[str, Any]]] = {
        CONFIGURATION: ("caller.yaml" if caller else f"{service}.yaml", known),
        "identity.yaml": ("certificate.yaml", {"name": "identity", **own}),
        "trust.yaml": ("trust.yaml", {"name": "trust", **own}),
    }
    if service is Sidecar.EDGE:
        wanted["public.yaml"] = ("certificate.yaml", {"name": "public", "folder": str(kept / "public")})
    try:
        return {name: environment.get_template(template).render(values) for name, (template, values) in wanted.items()}
    except jinja2.TemplateNotFound as error:
        raise CommandError(f"there is no template {error.name} in {templates or _templates()}") from None
    except jinja2.TemplateError as error:
        raise CommandError(f"a template cannot be filled: {error.message}") from None


def _refuse_open(settings: Settings, service: Sidecar) -> None:
    """With a sidecar nothing of ours may be reached past it."""
    own = {
        Sidecar.EDGE: [("edge.listen", settings.edge.listen), ("edge.admin_listen", settings.edge.admin_listen)],
        Sidecar.ROUTER: [
            ("router.listen", settings.router.listen),
            ("router.metrics_listen", settings.router.metrics_listen),
        ],
        Sidecar.BILLING: [
            ("billing.listen", settings.billing.listen),
            ("billing.metrics_listen", settings.billing.metrics_listen),
        ],
    }.get(service, [])
    own += observed.metrics_listens(settings, service)
    for setting, address in [*own, ("sidecar.admin_listen", settings.sidecar.admin_listen)]:
        # Metrics need not be offered at all.
        if address or not setting.endswith(".metrics_listen"):
            _refuse_remote(setting, address)
    if settings.sidecar.observed_listen:
        split(settings.sidecar.observed_listen, observed.SETTING)


def _refuse_remote(setting: str, address: str) -> None:
    if not _is_local(address, setting):
        raise CommandError(f"{setting}: {address} is not on loopback, where anybody could reach it past the sidecar")


def _templates() -> Path:
    for folder in FOLDERS:
        if folder.is_dir():
            return folder
    raise CommandError("the templates of the sidecars are not here; name their folder (deploy/envoy) with --templates")


def _peers(settings: Settings, service: Sidecar) -> Sequence[Peer]:
    if service in (Sidecar.ROUTER, Sidecar.BILLING):
        return ()
    found = _pairs("billing", settings.billing_targets, "edge.billing_target", settings.sidecar.billings)
    if service is not Sidecar.FINANCE:
        found = [
            *_pairs("router", settings.router_targets, "edge.router_target", settings.sidecar.routers),
            *found,
        ]
    return found


def _pairs(service: str, own: Sequence[str], setting: str, remotes: str) -> list[Peer]:
    others = [each.strip() for each in remotes.split(",") if each.strip()]
    plural = f"sidecar.{service}s"
    if not others:
        raise CommandError(f"set {plural} to where the sidecars of the {service} instances are, such as 10.0.0.5:15051")
    if len(own) != len(others):
        raise CommandError(
            f"{setting} names {len(own)} and {plural} {len(others)}: each sidecar there needs its own address here"
        )
    for each in own:
        _refuse_remote(setting, each)
    for each in others:
        split(each, plural)
    return [
        Peer(f"{service}-{number}", service, local, remote)
        for number, (local, remote) in enumerate(zip(own, others, strict=True), 1)
    ]


def _is_local(address: str, setting: str) -> bool:
    if unix_path(address) is not None:
        return True
    host, _ = split(address, setting)
    return host == "localhost" or (_is_ip(host) and ip_address(host).is_loopback)


def _is_literal(address: str) -> bool:
    return unix_path(address) is not None or _is_ip(split(address, "the address")[0])


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _socket(address: str) -> str:
    """An address as Envoy writes it."""
    if (path := unix_path(address)) is not None:
        return _json({"pipe": {"path": str(path), "mode": 0o600}})
    host, port = split(address, "the address")
    return _json({"socket_address": {"address": "127.0.0.1" if host == "localhost" else host, "port_value": port}})


def _seconds(value: float) -> str:
    return f"{value:.3f}s"


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
