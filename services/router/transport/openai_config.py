"""`runtime_config` of a worker that speaks the OpenAI API. Pure; the OpenAI transport and the factory import it."""

from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from services.router.transport import openai_count
from services.router.transport.port import TransportConfig


class OpenAiConfig(TransportConfig):
    """Settings of the `openai` transport, each with a default that fits the stock servers."""

    transport: Literal["openai"]
    # Let fields pass that are neither the OpenAI API's nor a runtime's listed extras. Forbidden ones never pass.
    forward_unknown_fields: bool = False
    # The name under which the worker takes the output limit of a chat.
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    # How usage is asked of a stream. `auto`: `continuous` where the check shows that the worker takes it, else `usage`.
    stream_options: Literal["auto", "continuous", "usage", "none"] = "auto"
    # Sent as `Authorization: Bearer`.
    api_key: SecretStr | None = None
    # In whose words the worker can be asked how many tokens a prompt has; `none`: it is not asked.
    count_tokens: openai_count.Dialect = "none"
    # Where it is asked, below the server's root; empty means the dialect's usual place.
    count_tokens_path: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)*$", max_length=256)] = ""

    @field_validator("count_tokens_path")
    @classmethod
    def _is_of_use(cls, path: str, info: ValidationInfo) -> str:
        if path and info.data.get("count_tokens") == "none":
            raise ValueError("it says where, and count_tokens must say how")
        return path
