"""`POST /v1/chat/completions`: the body. Pure; `admission.py` imports it."""

from typing import Any

from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION
from speedinfer.router.v1.fleet_pb2 import FEATURE_CHAT, FEATURE_IMAGES, FEATURE_LOGPROBS, FEATURE_TOOLS

from services.edge import fields, media, openai_request, template_names
from services.edge.openai_request import Bounds, InferenceRequest, Need
from services.edge.prompt_size import PromptSize, body_bytes


def check(body: dict[str, Any], members: dict[str, bytes], bounds: Bounds) -> InferenceRequest:
    """The request that the body makes. Refused (400) names the member at fault."""
    model = openai_request.model_of(body)
    messages = fields.objects(body, "messages")
    if not messages:
        fields.refuse("messages", "'messages' must be a list that is not empty.")
    if len(messages) > bounds.max_messages:
        fields.refuse("messages", f"'messages' must have at most {bounds.max_messages} items.")
    limit = openai_request.output_limit(body)
    choices, sequences = openai_request.sequences(body)
    stream, usage_wish = openai_request.streaming(body)
    openai_request.check_sampling(body)
    fields.mapping(body, "chat_template_kwargs")
    template_names.refuse(body, members.values())
    fields.boolean(body, "logprobs")
    fields.integer(body, "top_logprobs", 0, 100)
    fields.objects(body, "tools")
    fields.objects(body, "functions")
    choice = body.get("tool_choice")
    if choice is not None and not isinstance(choice, str | dict):
        fields.refuse("tool_choice", "'tool_choice' must be a string or an object.")
    measured = media.measure(messages)
    has_tools = bool(body.get("tools") or body.get("functions"))
    size = PromptSize(
        text_bytes=measured.text_bytes + body_bytes(body, frozenset({"messages"})),
        messages=len(messages),
        has_tools=has_tools,
        images=measured.images,
    )
    return InferenceRequest(
        operation=OPERATION_CHAT_COMPLETION,
        model=model,
        stream=stream,
        usage_wish=usage_wish,
        members=openai_request.passed_on(body, members),
        prompt=size,
        output_limit=limit,
        choices=choices,
        sequences=sequences,
        needs=tuple(_needs(body, measured.first_image)),
    )


def _needs(body: dict[str, Any], first_image: str) -> list[Need]:
    needs = [Need(FEATURE_CHAT, ""), *openai_request.sampling_needs(body)]
    needs += [Need(FEATURE_TOOLS, name) for name in ("tools", "functions") if body.get(name)]
    if body.get("tool_choice") not in (None, "none", "auto"):
        needs.append(Need(FEATURE_TOOLS, "tool_choice"))
    if body.get("logprobs"):
        needs.append(Need(FEATURE_LOGPROBS, "logprobs"))
    if body.get("top_logprobs"):
        needs.append(Need(FEATURE_LOGPROBS, "top_logprobs"))
    if first_image:
        needs.append(Need(FEATURE_IMAGES, first_image))
    return needs
