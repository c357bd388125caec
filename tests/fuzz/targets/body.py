"""Promise: whatever a client posts is refused with 400 or taken as it stands: its members go on with the values that they have,
the hold's bound covers every string in it, and no count below one comes of it. Nothing but Refused is raised.
"""

import unicodedata
from typing import Any

from services.edge import chat_request, completion_request, embedding_request, json_object
from services.edge.openai_errors import Refused
from services.edge.openai_request import Bounds, InferenceRequest
from tests.fuzz.choices import Choices
from tests.fuzz.oracles import json_text

INSTRUMENTED = (
    "services.edge.normal_form",
    "services.edge.json_object",
    "services.edge.chat_request",
    "services.edge.completion_request",
    "services.edge.embedding_request",
    "services.edge.openai_request",
    "services.edge.fields",
    "services.edge.media",
    "services.edge.prompt_size",
)
MAX_DEPTH = 16
CHECKS = (chat_request.check, completion_request.check, embedding_request.check)
# The gateway's own; they never go on as the client wrote them.
OURS = {"model", "stream", "stream_options", "max_tokens", "max_completion_tokens"}
# No model reads these, so that no hold is made for them.
UNREAD = {"model", "user", "metadata", "stop", "service_tier", "safety_identifier", "prompt_cache_key", "encoding_format",
          "logit_bias"}  # fmt: skip
NAMES = (
    "model", "messages", "prompt", "input", "max_tokens", "max_completion_tokens", "n", "best_of", "stream", "stream_options",
    "tools", "functions", "stop", "temperature", "seed", "response_format", "chat_template_kwargs", "chat_template", "echo",
    "logit_bias", "documents", "x", "beam_width", "logprobs", "suffix", "user", "dimensions",
)  # fmt: skip


def check(data: bytes) -> None:
    """The first byte chooses between bytes as they stand and a body that is built; the second the operation."""
    choices = Choices(data)
    raw, operation = choices.flag(), choices.below(3)
    body = choices.rest() if raw else _built(choices, operation).encode("utf-8", "surrogatepass")
    try:
        values, members = json_object.parse(body, MAX_DEPTH)
        request = CHECKS[operation](values, members, Bounds(max_depth=MAX_DEPTH, max_messages=4, max_inputs=4))
    except Refused as error:
        refused: Refused | None = error
    else:
        refused = None
        _check_taken(request, json_text.value(body))
    assert refused is None or refused.problem.status == 400


def _built(choices: Choices, operation: int) -> str:
    members: list[tuple[str, Any]] = [("model", "m")]
    place = ("messages", "prompt", "input")[operation]
    members.append((place, _place(choices, place)))
    while choices.more and len(members) < 10:
        name = choices.pick(NAMES)
        members.append((name, _place(choices, name)))
    return choices.object_text(members)


def _place(choices: Choices, name: str) -> Any:
    if name == "messages" and choices.below(8):
        return [_message(choices) for _ in range(choices.below(4) + 1)]
    if name in ("prompt", "input") and choices.below(8):
        text = choices.text()
        return choices.pick((text, [text], [1, 2, 3], [[1, 2], [3]], [text, "b"], [choices.value()]))
    if name in ("tools", "functions", "documents") and choices.below(4):
        return [{"function": choices.value()} for _ in range(choices.below(3))]
    if name in ("stream", "echo"):
        return choices.pick((True, False, None, 1, "true"))
    if name == "stream_options":
        return choices.pick(({"include_usage": choices.flag()}, {}, None, [], {"include_usage": 1}))
    if name in ("max_tokens", "max_completion_tokens", "n", "best_of", "beam_width", "seed", "logprobs", "dimensions"):
        return choices.number()
    return choices.value()


def _message(choices: Choices) -> Any:
    content = choices.pick((
        choices.text(), None, [{"type": "text", "text": choices.text()}], [choices.text()], choices.value(),
        [{"type": "image_url", "image_url": {"url": choices.pick(("data:image/png;base64,AAAA", "http://h/x", "DATA:x"))}}],
        [{"type": choices.text(longest=2), choices.pick(("text", "video", "refusal", "image")): choices.value()}],
    ))  # fmt: skip
    message: dict[str, Any] = {"role": choices.pick(("user", "system", "", choices.text())), "content": content}
    if choices.below(4) == 3:
        message[choices.pick(("name", "tool_calls", "audio", "q", "reasoning_content"))] = choices.value()
    return choices.pick((message, message, message, choices.value()))


def _check_taken(request: InferenceRequest, body: Any) -> None:
    assert isinstance(body, dict), "what is no JSON object was taken"
    assert _depth(body) <= MAX_DEPTH
    assert request.model == body["model"]
    relayed = {name: json_text.value(text) for name, text in request.members}
    assert len(relayed) == len(request.members), "a member goes on twice"
    assert relayed == {name: value for name, value in body.items() if value is not None and name not in OURS}
    limits = [body[name] for name in ("max_tokens", "max_completion_tokens") if body.get(name) is not None]
    if request.operation == 3:
        assert request.output_limit is None
        assert request.choices == request.prompt.inputs >= 1
    else:
        assert 1 <= request.choices <= request.sequences
        assert all(type(number) is int for number in (*limits, body.get("n") or 1)), "a number that is none was taken"
        assert request.output_limit == (min(limits) if limits else None)
        assert request.output_limit is None or request.output_limit >= 1
        assert request.choices == (body.get("n") or 1)
        assert request.stream == (body.get("stream") or False)
    read = {name: value for name, value in body.items() if name not in UNREAD}
    assert request.prompt.text_bytes >= sum(map(_bytes, _strings(read))), "a string that the hold does not cover"
    ids = (0, _token_ids(body.get("prompt")), _token_ids(body.get("input")))[request.operation - 1]
    assert request.prompt.token_ids == ids


def _bytes(text: str) -> int:
    return max(len(text.encode()), len(unicodedata.normalize("NFKC", text).encode()))


def _strings(value: Any) -> list[str]:
    """Every string that a model may read; an image's data is no text."""
    if isinstance(value, str):
        return [] if value[:5].lower() == "data:" else [value]
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _strings(item)]
    return []


def _token_ids(value: Any) -> int:
    """How many numbers a prompt is, where it is one of numbers."""
    if not isinstance(value, list):
        return 0
    if value and all(isinstance(item, list) for item in value):
        return sum(map(_token_ids, value))
    return len(value) if value and all(type(item) is int for item in value) else 0


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0
