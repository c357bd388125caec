"""A registration as operators write it: the contract's JSON, checked. Pure; the registrar, the registry and the store use it.

The same rules wherever it comes from: gRPC, the command, the admin listener, the settings file. What is wrong is named by its
place; a value is never repeated, since some are secret.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from services.common.ids import WORKER_ID
from services.router import endpoint
from services.router.networks import EVERYWHERE, Networks
from services.router.transport import factory
from services.router.transport.port import TransportConfig

MAX_METADATA_BYTES = 64 * 1024
MAX_SHOWN = 128
SECRET = "***"  # noqa: S105 - what is shown instead of one
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]{0,8192}")
# What the connection itself decides.
_RESERVED_HEADERS = frozenset(
    [
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "accept-encoding",
    ]
)

ModelName = Annotated[str, Field(pattern=r"^[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]{0,254}[^\s\x00-\x1f\x7f])?$")]


class InvalidRegistration(ValueError):
    """What is wrong with a registration; `field` is the first place that is."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class _Document(BaseModel):
    """The document's shape; `runtime_config` is its transport's business."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    worker_id: Annotated[str, Field(pattern=WORKER_ID)]
    worker_type: Annotated[str, Field(max_length=128)] = ""
    runtime: Literal["tensorrt-llm", "triton", "vllm", "sglang", "llama.cpp", "openai-compatible"]
    runtime_endpoint: Annotated[str, Field(max_length=2048)]
    supported_models: Annotated[list[ModelName], Field(min_length=1, max_length=1000)]
    runtime_config: dict[str, Any]
    runtime_metadata: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Registration:
    """A registration that is sound in itself."""

    worker_id: str
    worker_type: str
    runtime: str
    endpoint: str
    supported_models: tuple[str, ...]
    config: TransportConfig
    metadata: Mapping[str, Any]
    # As it came, for the store: holds secrets.
    document: Mapping[str, Any]

    def shown_config(self) -> dict[str, Any]:
        """`runtime_config` as operators may see it again."""
        secrets = {name for name in type(self.config).model_fields if _is_secret(getattr(self.config, name))}
        written = self.document["runtime_config"]
        return {name: _hidden(value) if name in secrets else value for name, value in written.items()}

    def secrets(self) -> list[str]:
        """What nobody may be told: the key and the values of the headers."""
        return [secret for name in type(self.config).model_fields for secret in _secrets(getattr(self.config, name))]


def read(document: Mapping[str, Any], networks: Networks = EVERYWHERE) -> Registration:
    """Check a registration, of a worker in `networks`. InvalidRegistration names what is wrong."""
    try:
        parsed = _Document.model_validate(dict(document), strict=True)
    except ValidationError as error:
        raise explain(error, "") from None
    _check_endpoint("runtime_endpoint", parsed.runtime_endpoint, networks)
    if len(set(parsed.supported_models)) != len(parsed.supported_models):
        raise InvalidRegistration("supported_models", "supported_models names a model twice")
    if len(repr(parsed.runtime_metadata)) > MAX_METADATA_BYTES:
        raise InvalidRegistration("runtime_metadata", f"runtime_metadata is over {MAX_METADATA_BYTES} bytes")
    config = _read_config(parsed.runtime_config, networks)
    for name in config.model_map:
        if name not in parsed.supported_models:
            shown = name if len(name) <= MAX_SHOWN else f"{name[:MAX_SHOWN]}..."
            raise InvalidRegistration(
                "runtime_config.model_map", f"runtime_config.model_map: {shown!r} is not one of supported_models"
            )
    return Registration(
        worker_id=parsed.worker_id,
        worker_type=parsed.worker_type,
        runtime=parsed.runtime,
        endpoint=parsed.runtime_endpoint,
        supported_models=tuple(parsed.supported_models),
        config=config,
        metadata=parsed.runtime_metadata,
        document=dict(document),
    )


def _read_config(values: dict[str, Any], networks: Networks) -> TransportConfig:
    kind = factory.CONFIGS.get(values["transport"]) if isinstance(values.get("transport"), str) else None
    if kind is None:
        known = " or ".join(repr(name) for name in sorted(factory.CONFIGS))
        raise InvalidRegistration("runtime_config.transport", f"runtime_config.transport must be {known}")
    try:
        config = kind.model_validate(values, strict=True)
    except ValidationError as error:
        raise explain(error, "runtime_config.") from None
    for name in type(config).model_fields:
        found = getattr(config, name)
        if isinstance(found, float) and not math.isfinite(found):
            raise InvalidRegistration(f"runtime_config.{name}", f"runtime_config.{name}: it must be a finite number")
    for name, value in config.headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _RESERVED_HEADERS:
            raise InvalidRegistration("runtime_config.headers", f"runtime_config.headers: {name!r} cannot be set")
        if not _HEADER_VALUE.fullmatch(value.get_secret_value()):
            raise InvalidRegistration(
                "runtime_config.headers", f"runtime_config.headers: the value of {name!r} is none"
            )
        if why := config.header_refusal(name, value.get_secret_value()):
            raise InvalidRegistration("runtime_config.headers", f"runtime_config.headers: {why}")
    api_key = getattr(config, "api_key", None)
    if api_key is not None and not _HEADER_VALUE.fullmatch(api_key.get_secret_value()):
        raise InvalidRegistration(
            "runtime_config.api_key", "runtime_config.api_key: it must be one line of characters that a header can hold"
        )
    grpc_endpoint = getattr(config, "grpc_endpoint", None)
    if isinstance(grpc_endpoint, str):
        _check_endpoint("runtime_config.grpc_endpoint", "http://" + grpc_endpoint.rpartition("://")[2], networks)
    return config


def _check_endpoint(field: str, url: str, networks: Networks) -> None:
    try:
        endpoint.check(url, networks)
    except endpoint.EndpointError as error:
        raise InvalidRegistration(field, f"{field}: {error}") from None


def explain(error: ValidationError, prefix: str) -> InvalidRegistration:
    """In our words, with the places that are wrong below `prefix`, and without a value."""
    problems: list[str] = []
    first = ""
    for problem in error.errors(include_input=False, include_url=False):
        place = prefix + ".".join(str(part) for part in problem["loc"])
        first = first or place
        if problem["type"] == "extra_forbidden":
            problems.append(f"{place} is not known")
        elif problem["type"] == "missing":
            problems.append(f"{place} is missing")
        else:
            problems.append(f"{place or 'it'}: {_wish(problem['type'], problem.get('ctx', {}))}")
    return InvalidRegistration(first.rstrip("."), "; ".join(problems))


# Our words for what the checks find; a limit comes from the check itself.
_WISHES = {
    "string_type": "it must be a string",
    "bool_type": "it must be true or false",
    "int_type": "it must be a whole number",
    "int_from_float": "it must be a whole number",
    "float_type": "it must be a number",
    "finite_number": "it must be a number that is finite",
    "list_type": "it must be a list",
    "dict_type": "it must be an object",
    "model_type": "it must be an object",
    "literal_error": "it must be {expected}",
    "greater_than": "it must be over {gt:g}",
    "greater_than_equal": "it must be at least {ge:g}",
    "less_than": "it must be below {lt:g}",
    "less_than_equal": "it must be at most {le:g}",
    "string_too_short": "it must not be empty",
    "string_too_long": "it must have at most {max_length} characters",
    "too_short": "it must have at least {min_length} items",
    "too_long": "it must have at most {max_length} items",
    "string_pattern_mismatch": "it has characters that are not allowed there, or is too long or empty",
    "value_error": "{error}",
}

_ALTERNATIVES = re.compile(r"\^\(([a-z|]+)\)\$")


def _wish(kind: str, context: Mapping[str, Any]) -> str:
    alternatives = _ALTERNATIVES.fullmatch(str(context.get("pattern", "")))
    if alternatives:
        return "it must be " + " or ".join(repr(word) for word in alternatives[1].split("|"))
    return _WISHES.get(kind, "it cannot be read").format(**context)


def _is_secret(value: Any) -> bool:
    return isinstance(value, SecretStr) or (isinstance(value, dict) and any(map(_is_secret, value.values())))


def _secrets(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [secret for each in value.values() for secret in _secrets(each)]
    return [value.get_secret_value()] if isinstance(value, SecretStr) else []


def _hidden(value: Any) -> Any:
    return dict.fromkeys(value, SECRET) if isinstance(value, dict) else SECRET
