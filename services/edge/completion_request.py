"""`POST /v1/completions`: the body. Pure; `admission.py` imports it.

A prompt is a string, a list of one string, or one list of token ids: several prompts in one call would be several answers
with one usage.
"""

from typing import Any

from speedinfer.common.v1.operation_pb2 import OPERATION_COMPLETION
from speedinfer.router.v1.fleet_pb2 import (
    FEATURE_COMPLETION,
    FEATURE_ECHO,
    FEATURE_LOGPROBS,
    FEATURE_SUFFIX,
    FEATURE_TOKEN_IDS,
)

from services.edge import fields, openai_request, template_names
from services.edge.normal_form import string_bytes
from services.edge.openai_request import Bounds, InferenceRequest, Need
from services.edge.prompt_size import PromptSize, body_bytes


def check(body: dict[str, Any], members: dict[str, bytes], _bounds: Bounds) -> InferenceRequest:
    """The request that the body makes. Refused (400) names the member at fault."""
    model = openai_request.model_of(body)
    text_bytes, token_ids = _prompt(body.get("prompt"))
    limit = openai_request.output_limit(body)
    choices, sequences = openai_request.sequences(body)
    stream, usage_wish = openai_request.streaming(body)
    openai_request.check_sampling(body)
    fields.mapping(body, "chat_template_kwargs")
    template_names.refuse(body, members.values())
    fields.integer(body, "logprobs", 0, 100)
    fields.boolean(body, "echo")
    fields.text(body, "suffix")
    size = PromptSize(text_bytes=text_bytes + body_bytes(body, frozenset({"prompt"})), token_ids=token_ids)
    return InferenceRequest(
        operation=OPERATION_COMPLETION,
        model=model,
        stream=stream,
        usage_wish=usage_wish,
        members=openai_request.passed_on(body, members),
        prompt=size,
        output_limit=limit,
        choices=choices,
        sequences=sequences,
        needs=tuple(_needs(body, token_ids)),
    )


def _prompt(prompt: Any) -> tuple[int, int]:
    """(bytes of text, number of token ids)."""
    if prompt is None:
        fields.refuse("prompt", "'prompt' is required.")
    if isinstance(prompt, str):
        return string_bytes(prompt), 0
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        return string_bytes(prompt[0]), 0
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], list):
        prompt = prompt[0]
    if not isinstance(prompt, list) or not prompt or not all(type(item) is int for item in prompt):
        fields.refuse("prompt", "'prompt' must be a string, a list of one string, or one list of token ids.")
    return 0, fields.token_ids(prompt, "prompt")


def _needs(body: dict[str, Any], token_ids: int) -> list[Need]:
    needs = [Need(FEATURE_COMPLETION, ""), *openai_request.sampling_needs(body)]
    if token_ids:
        needs.append(Need(FEATURE_TOKEN_IDS, "prompt"))
    if body.get("logprobs") is not None:
        needs.append(Need(FEATURE_LOGPROBS, "logprobs"))
    if body.get("echo"):
        needs.append(Need(FEATURE_ECHO, "echo"))
    if body.get("suffix"):
        needs.append(Need(FEATURE_SUFFIX, "suffix"))
    return needs
