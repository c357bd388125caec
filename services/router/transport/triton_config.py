"""The `runtime_config` of a worker that is reached through Triton.

Every name in it is checked when the worker is registered: unknown ones are refused by name. A name of the form
`<parameter>_input_name` says which input tensor takes a parameter, so those are open, but only to parameters that may
reach a worker at all. Pure; imported by the Triton transport and by whoever reads registrations.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from services.router.transport.port import TransportConfig

SUFFIX = "_input_name"
_PARAMETER = re.compile(r"[a-z][a-z0-9_]{0,63}")
_GRPC_ENDPOINT = re.compile(r"(?:(?:grpcs?|https?)://)?(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}/?")
# What ends in `-bin` is base64 to gRPC, and what begins with `grpc-` is its own.
_METADATA_NAME = re.compile(r"(?!grpc-)(?!.*-bin$)[0-9a-z_.-]+")
_METADATA_VALUE = re.compile(r"[\x20-\x7e]*")

# Client fields that change accounting, name a template or reach into the worker, and what the gateway itself fills: no
# tensor may be named for them.
FORBIDDEN_PARAMETERS = frozenset({
    "n", "n_cmpl", "n_predict", "best_of", "beam_width", "num_return_sequences", "use_beam_search", "max_new_tokens",
    "max_completion_tokens", "prompt_ignore_length", "prompt_token_ids", "truncate_prompt_tokens", "lora_request",
    "lora_task_id", "lora_weights", "lora_config", "disaggregated_params", "cache_salt", "chat_template",
    "chat_template_kwargs", "injected_chat_template_kwargs", "media_io_kwargs", "mm_processor_kwargs", "messages",
    "prompt", "model", "input_ids", "decoder_text_input", "prompt_embedding_table", "tools", "logprobs", "echo",
})  # fmt: skip

TensorName = Annotated[str, Field(min_length=1, max_length=256)]
# Numbers are what JSON and TOML authors write; Triton's versions are names of folders.
Version = Annotated[str, BeforeValidator(lambda v: str(v) if type(v) is int else v), Field(pattern=r"^[0-9]{0,18}$")]
Token = Annotated[str, Field(max_length=256)]


class TritonConfig(TransportConfig):
    """Settings of the Triton transport. A name left out is detected from what the loaded model declares."""

    transport: Literal["triton"] = "triton"
    model_name: TensorName
    # Empty: the version that Triton chooses.
    model_version: Version = ""
    input_name: TensorName | None = None
    output_name: TensorName | None = None
    max_tokens_input_name: TensorName | None = None
    prompt_tokens_output_name: TensorName | None = None
    completion_tokens_output_name: TensorName | None = None
    # `auto`: gRPC where it answers, since only gRPC can be cancelled, else HTTP.
    protocol: Literal["auto", "http", "grpc"] = "auto"
    # `host:port`; default: the endpoint's host and the port after its own, where that one is explicit.
    grpc_endpoint: Annotated[str, Field(max_length=512)] | None = None
    # Jinja, or the path of a file on the router's machine.
    chat_template: Annotated[str, Field(min_length=1, max_length=1024 * 1024)] | None = None
    bos_token: Token | None = None
    eos_token: Token | None = None
    # Sent only when set.
    end_id: int | None = None
    pad_id: int | None = None
    text_mode: Literal["auto", "delta", "cumulative"] = "auto"
    usage_mode: Literal["auto", "sum", "last"] = "auto"
    # Parameter -> input tensor. Comes from the `<parameter>_input_name` keys; no key of its own.
    further_inputs: dict[str, TensorName] = {}  # noqa: RUF012 - pydantic copies it

    @model_validator(mode="before")
    @classmethod
    def _gather_input_names(cls, data: Any) -> Any:
        """Move `<parameter>_input_name` keys into `further_inputs`; what remains unknown is then refused by name."""
        if not isinstance(data, dict):
            return data
        rest: dict[str, Any] = {}
        further: dict[str, Any] = {}
        for key, value in data.items():
            if key == "further_inputs":
                raise ValueError("'further_inputs' is no setting; name each input as '<parameter>_input_name'")
            parameter = key.removesuffix(SUFFIX) if isinstance(key, str) else ""
            if key in cls.model_fields or parameter == key or not _PARAMETER.fullmatch(parameter):
                rest[key] = value
            else:
                further[parameter] = value
        return {**rest, "further_inputs": further} if further else rest

    @field_validator("further_inputs")
    @classmethod
    def _refuse_forbidden(cls, value: dict[str, str]) -> dict[str, str]:
        for parameter in value:
            if parameter in FORBIDDEN_PARAMETERS:
                raise ValueError(f"'{parameter}{SUFFIX}': the parameter {parameter!r} is never sent to a worker")
        return value

    @field_validator("grpc_endpoint")
    @classmethod
    def _check_endpoint(cls, value: str | None) -> str | None:
        if value is not None and not _GRPC_ENDPOINT.fullmatch(value):
            raise ValueError("it must be host:port, with grpc:// or grpcs:// before it or nothing")
        return value

    def header_refusal(self, name: str, value: str) -> str:
        """See TransportConfig. gRPC's metadata has fewer names and values than HTTP has."""
        if self.protocol == "http":
            return ""
        if not _METADATA_NAME.fullmatch(name.lower()):
            return f"{name!r} cannot be sent over gRPC; set another name, or 'protocol' to 'http'"
        if not _METADATA_VALUE.fullmatch(value):
            return f"the value of {name!r} cannot be sent over gRPC, which takes visible ASCII and spaces"
        return ""

    def worker_model(self, public_name: str) -> str:
        """Triton's name of the model that serves a public one."""
        return self.model_map.get(public_name, self.model_name)
