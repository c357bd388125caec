"""`[[discover]]` of the settings: for each the template of its workers, and the source that finds them. The app imports it."""

import random
import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.common.errors import ConfigurationError
from services.router import registration as registrations
from services.router.discovery import cluster
from services.router.discovery.cluster import Cluster
from services.router.discovery.endpoint_slices import EndpointSlices
from services.router.discovery.kubernetes import KubernetesSource
from services.router.discovery.names import NameSource
from services.router.discovery.port import Source
from services.router.discovery.questions import Questions, Server
from services.router.discovery.srv import SrvSource
from services.router.discovery.template import Template
from services.router.registration import InvalidRegistration
from services.router.transport.name_lookup import LOOKUP

KUBERNETES, SRV = "kubernetes", "srv"
DNS_PORT = 53
MAX_FILE_BYTES = 1024
_NAME = r"^[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*\.?$"
_SERVER = re.compile(
    r"\[(?P<six>[0-9A-Fa-f:.]+)\](:(?P<port6>\d{1,5}))?|(?P<four>[0-9.]+)(:(?P<port4>\d{1,5}))?|(?P<bare>[0-9A-Fa-f:.]+)"
)
_LABEL = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"

Label = Annotated[str, Field(pattern=_LABEL)]
Section = TypeVar("Section", bound=BaseModel)


class SrvSettings(BaseModel):
    """A name with SRV records."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: Annotated[str, Field(pattern=_NAME, max_length=253)]
    # `10.0.0.2`, `10.0.0.2:8600`, `[fd00::2]:8600`. None: the system's.
    nameservers: Annotated[list[str], Field(min_length=1, max_length=8)] | None = None


class KubernetesSettings(BaseModel):
    """A service of Kubernetes."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    service: Label
    # As its EndpointSlices name it, or a number.
    port: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,63}$")] | Annotated[int, Field(ge=1, lt=1 << 16)]
    # None: that of the router's own pod.
    namespace: Label | None = None
    # Of the service account: `token`, `ca.crt`, `namespace`.
    folder: Annotated[str, Field(min_length=1)] = str(cluster.IN_CLUSTER)
    # None: where Kubernetes tells its pods that it is.
    api_server: str | None = None


def read_all(documents: Sequence[Mapping[str, Any]], interval_s: float) -> list[tuple[Template, Source]]:
    """`interval_s`: how often is looked where nobody says that something changed. ConfigurationError names what is wrong."""
    made: list[tuple[Template, Source]] = []
    for number, document in enumerate(documents):
        try:
            made.append(_read(dict(document), interval_s))
        except InvalidRegistration as error:
            raise ConfigurationError(f"discover[{number}]: {error}") from None
    return made


def _read(document: dict[str, Any], interval_s: float) -> tuple[Template, Source]:
    if KUBERNETES in document and SRV in document:
        raise InvalidRegistration(SRV, f"{SRV} and {KUBERNETES}: give one of them, and a table for the other")
    if SRV in document:
        return _srv(document.pop(SRV), document, interval_s)
    if KUBERNETES in document:
        settings = _section(KUBERNETES, document.pop(KUBERNETES), KubernetesSettings)
        return Template(document, finds_ports=True), _kubernetes(settings, interval_s)
    template = Template(document)
    return template, NameSource(template.name, template.port, interval_s, LOOKUP)


def _srv(written: Any, document: dict[str, Any], interval_s: float) -> tuple[Template, Source]:
    settings = _section(SRV, {"name": written} if isinstance(written, str) else written, SrvSettings)
    servers = [_server(number, text) for number, text in enumerate(settings.nameservers or ())]
    return Template(document, finds_ports=True), SrvSource(settings.name, Questions(servers), interval_s)


def _server(number: int, text: str) -> Server:
    parts = _SERVER.fullmatch(text)
    try:
        address = str(ip_address((parts["six"] or parts["four"] or parts["bare"]) if parts else ""))
        port = int((parts and (parts["port6"] or parts["port4"])) or DNS_PORT)
        if not 0 < port < 1 << 16:
            raise ValueError
    except ValueError:
        place = f"{SRV}.nameservers.{number}"
        raise InvalidRegistration(
            place, f"{place}: it must be an address, with a port or without: 10.0.0.2, 10.0.0.2:8600, [fd00::2]:8600"
        ) from None
    return address, port


def _kubernetes(settings: KubernetesSettings, interval_s: float) -> KubernetesSource:
    folder = Path(settings.folder)
    namespace = settings.namespace or _own_namespace(folder)
    api = Cluster(_api_server(settings.api_server), folder)
    slices = EndpointSlices(api, namespace, settings.service)
    # Spreads requests; nothing secret hangs on it.
    chance = random.Random()  # noqa: S311
    return KubernetesSource(namespace, settings.service, settings.port, slices, interval_s, chance)


def _api_server(named: str | None) -> str:
    url = named or cluster.in_cluster_url()
    place = f"{KUBERNETES}.api_server"
    if not url:
        raise InvalidRegistration(
            place, f"{place} is missing, and this is no pod: KUBERNETES_SERVICE_HOST is not set; give https://host:port"
        )
    try:
        parts = urlsplit(url)
        is_good = parts.scheme == "https" and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or parts.path.strip("/") or parts.query or parts.fragment:
        # Not plain HTTP: it would carry the token.
        raise InvalidRegistration(place, f"{place}: it must be https://host:port, without a path")
    return url.rstrip("/")


def _own_namespace(folder: Path) -> str:
    path, place = folder / "namespace", f"{KUBERNETES}.namespace"
    try:
        with path.open("rb") as file:
            namespace = file.read(MAX_FILE_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        raise InvalidRegistration(
            place, f"{place} is missing, and {path} cannot be read ({error.strerror}): name it"
        ) from None
    if not namespace or not namespace.replace("-", "").isalnum():
        raise InvalidRegistration(place, f"{place} is missing, and {path} holds none: name it")
    return namespace


def _section(name: str, value: Any, kind: type[Section]) -> Section:
    try:
        return kind.model_validate(value, strict=True)
    except ValidationError as error:
        raise registrations.explain(error, f"{name}.") from None
