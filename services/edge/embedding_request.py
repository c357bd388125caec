"""`POST /v1/embeddings`: the body. Pure; `admission.py` imports it.

Four input forms: a string, a list of strings, a list of token ids, a list of lists of token ids.
"""

from typing import Any

from speedinfer.common.v1.operation_pb2 import OPERATION_EMBEDDING
from speedinfer.router.v1.fleet_pb2 import FEATURE_EMBEDDING, FEATURE_TOKEN_IDS

from services.edge import fields, openai_request, template_names
from services.edge.normal_form import string_bytes
from services.edge.openai_request import Bounds, InferenceRequest, Need, UsageWish
from services.edge.prompt_size import PromptSize, body_bytes

_FORMS = "'input' must be a string, a list of strings, a list of token ids or a list of lists of token ids, none of them empty."


def check(body: dict[str, Any], members: dict[str, bytes], bounds: Bounds) -> InferenceRequest:
    """The request that the body makes. Refused (400) names the member at fault."""
    model = openai_request.model_of(body)
    text_bytes, inputs, token_ids = _input(body.get("input"), bounds.max_inputs)
    if fields.boolean(body, "stream"):
        fields.refuse("stream", "Embeddings are not streamed.")
    encoding = fields.text(body, "encoding_format")
    if encoding not in (None, "float", "base64"):
        fields.refuse("encoding_format", "'encoding_format' must be 'float' or 'base64'.")
    fields.integer(body, "dimensions", 1)
    fields.text(body, "user")
    fields.mapping(body, "chat_template_kwargs")
    template_names.refuse(body, members.values())
    needs = [Need(FEATURE_EMBEDDING, "")]
    if token_ids:
        needs.append(Need(FEATURE_TOKEN_IDS, "input"))
    size = PromptSize(
        text_bytes=text_bytes + body_bytes(body, frozenset({"input"})), inputs=inputs, token_ids=token_ids
    )
    return InferenceRequest(
        operation=OPERATION_EMBEDDING,
        model=model,
        stream=False,
        usage_wish=UsageWish.NOT_SAID,
        members=openai_request.passed_on(body, members),
        prompt=size,
        output_limit=None,
        choices=inputs,
        sequences=1,
        needs=tuple(needs),
    )


def _input(value: Any, max_inputs: int) -> tuple[int, int, int]:
    """(bytes of text, number of inputs, number of token ids)."""
    if value is None:
        fields.refuse("input", "'input' is required.")
    if isinstance(value, str) and value:
        return string_bytes(value), 1, 0
    if not isinstance(value, list) or not value:
        fields.refuse("input", _FORMS)
    if all(type(item) is int for item in value):
        return 0, 1, fields.token_ids(value, "input")
    if len(value) > max_inputs:
        fields.refuse("input", f"'input' must have at most {max_inputs} items.")
    if all(isinstance(item, str) and item for item in value):
        return sum(map(string_bytes, value)), len(value), 0
    if not all(isinstance(item, list) and item for item in value):
        fields.refuse("input", _FORMS)
    return 0, len(value), sum(fields.token_ids(item, "input") for item in value)
