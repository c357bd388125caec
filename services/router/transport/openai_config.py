"""`runtime_config` of a worker that speaks the OpenAI API. Pure; the OpenAI transport and the factory import it."""

from typing import Literal

from pydantic import SecretStr

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
