"""Settings of all three services: a TOML file, and environment variables of the same names.

`SPEEDINFER_EDGE__LISTEN` is `listen` in `[edge]`. Variables win over the file. A name that is not known is refused, in the
file and in the environment, so that a mistyped setting is never silently a default. Only composition roots read this.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from services.common.errors import ConfigurationError

PREFIX = "SPEEDINFER_"
CONFIG_VARIABLE = "SPEEDINFER_CONFIG"

# Seconds. A week is far over every use, and far below what clocks and messages can hold.
Positive = Annotated[float, Field(gt=0, le=7 * 86_400, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


def _read_network(value: Any) -> IPv4Network | IPv6Network:
    try:
        return ip_network(value if isinstance(value, str) else str(value))
    except ValueError:
        raise ValueError("it is no network such as 10.0.0.0/8 or fd12::/16") from None


# Pydantic's own reading of the two kinds names its inside where neither fits.
Network = Annotated[IPv4Network | IPv6Network, PlainValidator(_read_network)]


class Section(BaseModel):
    """A part of the settings: unknown names are refused, values never change after start."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EdgeLimits(Section):
    """What bounds the edge. Every queue, body, buffer and wait has its bound here."""

    max_body_bytes: Count = 32 * 1024 * 1024
    # All bodies that are being read together; those of one key are at most a quarter of it, or one.
    max_bodies_bytes: Count = 512 * 1024 * 1024
    # A body of 32 MiB over 4 Mbit/s takes about a minute.
    body_timeout_s: Positive = 75.0
    # Connections of clients, idle ones among them; and how long one may take until the head of its next request is there.
    max_connections: Count = 12_000
    idle_connection_s: Positive = 75.0
    max_json_depth: Count = 64
    max_messages: Count = 4096
    max_streams: Count = 10_000
    # A stream's buffer between the router and a client that reads slowly.
    buffer_bytes: Count = 64 * 1024
    # A client that takes nothing for this long has left.
    reader_stall_s: Positive = 30.0
    # Status and headers go out after this long even if nothing has come; then a comment in every silent gap as long.
    heartbeat_s: Positive = 10.0
    # The total deadline of a request.
    request_timeout_s: Positive = 3600.0
    # How long a stream's end waits for billing before the outbox is fsynced instead.
    settle_wait_s: Positive = 1.0
    billing_timeout_s: Positive = 5.0
    # How long a refusal for want of credit waits for a worker to count the prompt.
    count_timeout_s: Positive = 2.0
    key_cache_s: Annotated[float, Field(ge=0, le=1)] = 1.0
    max_orphans_per_key: Count = 8
    # A settlement takes some 260 bytes, and three times as many of memory.
    max_outbox_bytes: Count = 64 * 1024 * 1024
    drain_s: Positive = 180.0

    @model_validator(mode="after")
    def _one_body_fits(self) -> "EdgeLimits":
        if self.max_bodies_bytes < self.max_body_bytes:
            raise ValueError("max_bodies_bytes must be at least max_body_bytes")
        return self


class EdgeSettings(Section):
    """The edge."""

    listen: str = "127.0.0.1:8080"
    admin_listen: str = "127.0.0.1:8081"
    # Processes that accept at the same address. Each has its own `admin_listen`, at ports that follow one another, and bounds.
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    # Where the router and billing answer; empty means where this file has them listen. Several: with commas between.
    router_target: str = ""
    billing_target: str = ""
    # Many requests share one call to a router; false: each has a call of its own.
    relay: bool = True
    limits: EdgeLimits = EdgeLimits()


class RouterLimits(Section):
    """What bounds the router."""

    max_workers: Count = 10_000
    max_attempts: Count = 2
    # Second attempts: a share of the requests, and so many at once after quiet times.
    retry_share: Annotated[float, Field(ge=0, le=1)] = 0.2
    retry_burst: Count = 10
    # Requests that wait for a place on a worker with a bound, for one model: for each place that its workers have, in all,
    # of one party; and for how long.
    max_waiting_per_place: Count = 4
    max_waiting: Count = 1024
    max_waiting_per_party: Count = 256
    queue_wait_s: Positive = 10.0
    # Prompts that one worker is asked to count at the same time, for requests that could not be held otherwise.
    max_counts_per_worker: Count = 4
    # One line of a worker's stream, and a whole answer.
    max_line_bytes: Count = 1024 * 1024
    max_answer_bytes: Count = 64 * 1024 * 1024
    probe_interval_s: Positive = 5.0
    # While a worker is down it is looked at more often, so that it is back soon after it answers.
    probe_interval_down_s: Positive = 1.0
    probe_timeout_s: Positive = 3.0
    check_timeout_s: Positive = 30.0
    probes_to_go_down: Count = 2
    probes_to_come_back: Count = 1
    # How often names of `[[discover]]` are looked up again.
    discover_interval_s: Positive = 5.0
    failures_to_open_circuit: Count = 5
    circuit_open_s: Positive = 5.0
    drain_s: Positive = 180.0


class RouterSettings(Section):
    """The router."""

    listen: str = "127.0.0.1:50051"
    metrics_listen: str = ""
    # Where registrations are kept; empty means `router/registry.json` below data_dir.
    registry: str = ""
    # `postgresql://user:password@host/database`, which is why it is a secret: the registry of all routers that are given it,
    # in place of that file.
    database: SecretStr = SecretStr("")
    # Networks that workers are in, such as `10.0.0.0/8`. None: everywhere but where no worker ever is.
    allowed_networks: Annotated[tuple[Network, ...], Field(min_length=1, max_length=1024)] | None = None
    limits: RouterLimits = RouterLimits()


class BillingLimits(Section):
    """What bounds billing."""

    lease_s: Positive = 60.0
    # No hold outlives the request's deadline by more than this.
    lease_after_deadline_s: Positive = 120.0
    id_age_days: Count = 90
    max_queue: Count = 8192
    max_batch: Count = 512
    max_items_per_call: Count = 1024
    expiry_interval_s: Positive = 1.0
    drain_s: Positive = 30.0


class BillingSettings(Section):
    """Billing."""

    listen: str = "127.0.0.1:50052"
    metrics_listen: str = ""
    # `sqlite:///relative/path`, `sqlite:////absolute/path`, `postgresql://user:password@host/database`, which is why it is
    # a secret; empty means `billing.db` below data_dir.
    database: SecretStr = SecretStr("")
    # How often what has changed is sealed, and the private key that signs; empty means `seal_key` below data_dir.
    seal_interval_s: Positive = 3600.0
    seal_key: str = ""
    limits: BillingLimits = BillingLimits()


class SidecarSettings(Section):
    """What `speedinfer sidecar` and `speedinfer certs` make of the machine that they run on; no service reads it."""

    # Whose identities are trusted: spiffe://TRUST_DOMAIN/speedinfer/edge and so on.
    trust_domain: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9._-]{0,253}[a-z0-9])?$")] = "speedinfer.internal"
    # A folder with one for each identity; empty means `certificates` below data_dir.
    certificates: str = ""
    # Where other services reach the router or billing that this sidecar stands before, and clients the edge.
    listen: str = "0.0.0.0:15051"
    public_listen: str = "0.0.0.0:8443"
    # Envoy's own: statistics, draining. Never to be reached from elsewhere.
    admin_listen: str = "127.0.0.1:9901"
    # Where Prometheus reads the service's metrics and Envoy's, and nothing else can be had; empty means nowhere.
    observed_listen: str = ""
    # The sidecars of all routers and of all billing instances, with commas between, in the order of edge.router_target and
    # edge.billing_target, which are where they are found on this machine.
    routers: str = ""
    billings: str = ""
    # How long a client may take for a request's head, and for all of it: longer than the edge gives it, whose answer says more.
    header_timeout_s: Positive = 10.0
    body_timeout_s: Positive = 90.0


class Settings(BaseSettings):
    """Everything."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, hide_input_in_errors=True
    )

    data_dir: Path = Path(".speedinfer")
    # The operators' bearer token; where it is not set, one is made in data_dir.
    admin_token: SecretStr | None = None
    log_level: str = "info"
    edge: EdgeSettings = EdgeSettings()
    router: RouterSettings = RouterSettings()
    billing: BillingSettings = BillingSettings()
    sidecar: SidecarSettings = SidecarSettings()
    # Registrations (the contract's JSON objects as TOML tables) that the router makes at start.
    workers: Annotated[list[dict[str, Any]], NoDecode] = []
    # The same, for workers that are found (docs/guides/discovery.md).
    discover: Annotated[list[dict[str, Any]], NoDecode] = []

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # The file's values come in as arguments; variables must win over them.
        return env_settings, init_settings

    @property
    def router_targets(self) -> tuple[str, ...]:
        """Where the edge finds its routers, each once."""
        return _targets(self.edge.router_target) or (self.router.listen,)

    @property
    def router_target(self) -> str:
        """Where the command finds the router that registers workers: the first."""
        return self.router_targets[0]

    @property
    def billing_targets(self) -> tuple[str, ...]:
        """Where the edge finds billing's processes, each once."""
        return _targets(self.edge.billing_target) or (self.billing.listen,)

    @property
    def billing_target(self) -> str:
        """Where the command finds billing: the first, since any of them answers for all."""
        return self.billing_targets[0]

    @property
    def registry_path(self) -> Path:
        """Where the router keeps its registrations."""
        return Path(self.router.registry) if self.router.registry else self.data_dir / "router" / "registry.json"

    @property
    def database_url(self) -> str:
        """Where billing keeps its ledger."""
        return self.billing.database.get_secret_value() or f"sqlite:///{self.data_dir / 'billing.db'}"

    @property
    def seal_key_path(self) -> Path:
        """Where the key that signs seals is kept."""
        return Path(self.billing.seal_key) if self.billing.seal_key else self.data_dir / "seal_key"

    @property
    def certificates_path(self) -> Path:
        """Where the certificates of identities are kept, a folder for each."""
        return Path(self.sidecar.certificates) if self.sidecar.certificates else self.data_dir / "certificates"

    @property
    def token(self) -> str | None:
        """The configured admin token, if there is one."""
        return self.admin_token.get_secret_value() if self.admin_token else None


def load(path: Path | None, environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings. `path` None: the file that SPEEDINFER_CONFIG names, else `speedinfer.toml` if it exists.

    ConfigurationError names every wrong or unknown setting by its place.
    """
    names = os.environ if environment is None else environment
    _refuse_unknown_variables(names)
    if path is None and (named := names.get(CONFIG_VARIABLE)):
        path = Path(named)
    values: dict[str, Any] = {}
    if path is not None or Path("speedinfer.toml").exists():
        values = _read(path or Path("speedinfer.toml"))
    try:
        return Settings(**values)
    except ValidationError as error:
        raise ConfigurationError("\n".join(_explain(error))) from None


def _targets(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, (each.strip() for each in text.split(",")))))


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"the settings file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"the settings file {path} is not TOML: {error}") from error


def _explain(error: ValidationError) -> Iterator[str]:
    for problem in error.errors():
        place = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            yield f"setting {place!r} is not known; see docs/guides/settings.md for the names"
        else:
            yield f"setting {place!r} is wrong: {problem['msg']}"


def _names(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        full = f"{prefix}{name}".upper()
        yield full
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _names(field.annotation, f"{full}__")


def _refuse_unknown_variables(names: Mapping[str, str]) -> None:
    known = {*_names(Settings, PREFIX), CONFIG_VARIABLE}
    unknown = sorted(name for name in names if name.upper().startswith(PREFIX) and name.upper() not in known)
    if unknown:
        raise ConfigurationError(f"environment variables that are no settings: {', '.join(unknown)}")
