"""What a worker is asked to count, in its own server's words, and what its answer says. Pure; the OpenAI transport imports it.

A count stands in for the bound that a hold is made by, so it is asked for only where the worker must see the very prompt that
it would see of the request itself. Every member of the request is one of three: the counting route takes it, or it says nothing
of the prompt, or the request is not counted.
"""

import json
from collections.abc import Sequence
from typing import Any, Literal

from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION, OPERATION_COMPLETION, Operation

from services.common import json_members
from services.router import usage
from services.router.transport.openai_extras import PLATFORM

Dialect = Literal["none", "vllm", "sglang", "anthropic"]
# Where each is asked unless the registration says otherwise; below the server's root.
PATHS: dict[str, str] = {"vllm": "/tokenize", "sglang": "/tokenize", "anthropic": "/v1/messages/count_tokens"}
# The member of the answer that is the count.
_COUNTS: dict[str, str] = {"vllm": "count", "sglang": "count", "anthropic": "input_tokens"}

Members = Sequence[tuple[str, bytes]]

# How an answer is drawn from the model, and who asks: nothing that a template is given.
_UNREAD = PLATFORM | {
    "allowed_token_ids", "bad_words", "best_of", "early_stopping", "frequency_penalty", "ignore_eos",
    "include_stop_str_in_output", "length_penalty", "logit_bias", "logprobs", "min_p", "min_tokens", "n",
    "presence_penalty", "repetition_penalty", "seed", "skip_special_tokens", "spaces_between_special_tokens", "stop",
    "stop_token_ids", "temperature", "top_k", "top_logprobs", "top_p", "top_p_min", "use_beam_search", "user",
}  # fmt: skip
# Members that say nothing of the prompt as long as they say this.
_UNREAD_IF: dict[str, frozenset[bytes]] = {
    "response_format": frozenset({b'{"type":"text"}'}),
    "tool_choice": frozenset({b'"auto"', b'"none"'}),
}
_TAKEN: dict[tuple[str, Operation.ValueType], frozenset[str]] = {
    ("vllm", OPERATION_CHAT_COMPLETION): frozenset(
        {"add_generation_prompt", "add_special_tokens", "chat_template_kwargs", "continue_final_message", "messages", "tools"}
    ),
    ("vllm", OPERATION_COMPLETION): frozenset({"add_special_tokens", "prompt"}),
    # Its route knows no messages.
    ("sglang", OPERATION_COMPLETION): frozenset({"add_special_tokens", "prompt"}),
    # Tools have another form there.
    ("anthropic", OPERATION_CHAT_COMPLETION): frozenset({"messages"}),
}  # fmt: skip


def body(dialect: str, operation: Operation.ValueType, members: Members, model: str) -> bytes | None:
    """What the counting route is sent for a request with these members (those that the worker would get); None if it cannot be
    asked about it."""
    taken = _TAKEN.get((dialect, operation))
    if taken is None:
        return None
    parts = {"model": json.dumps(model).encode()}
    for name, value in members:
        if name in taken:
            parts[name] = value
        elif name not in _UNREAD and _compact(value) not in _UNREAD_IF.get(name, frozenset()):
            return None
    if "prompt" in taken:
        text = _text(parts.get("prompt", b""))
        if text is None:
            return None
        parts["prompt"] = text
    elif dialect == "anthropic":
        turns = _turns(parts.pop("messages", b""))
        if turns is None:
            return None
        parts |= turns
    elif "messages" not in parts:
        return None
    return b"{" + b",".join(json.dumps(name).encode() + b":" + value for name, value in parts.items()) + b"}"


def read(dialect: str, answer: bytes) -> int | None:
    """The count that an answer holds; None if it holds none. No prompt has no tokens, so that zero is none either."""
    try:
        value = json_members.parse(answer)
    except json_members.NotJson:
        return None
    if not isinstance(value, dict):
        return None
    return usage.count(value.get(_COUNTS[dialect])) or None


def _compact(value: bytes) -> bytes:
    """A short value without the white space around its tokens; one that is long is none of those that are looked for."""
    return b"".join(value.split()) if len(value) <= 64 else b""


def _parsed(value: bytes) -> Any:
    try:
        return json_members.parse(value)
    except json_members.NotJson:
        return None


def _text(value: bytes) -> bytes | None:
    """A prompt's one string, as JSON; None for token ids, which need no counting."""
    if value[:1] == b'"':
        return value
    prompt = _parsed(value)
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        return json.dumps(prompt[0]).encode()
    return None


def _turns(value: bytes) -> dict[str, bytes] | None:
    """Messages in the form of the Messages API, where the two forms say the same: plain texts, one of the system first."""
    messages = _parsed(value)
    if not isinstance(messages, list):
        return None
    parts: dict[str, bytes] = {}
    if messages and _is_plain(messages[0], "system"):
        parts["system"] = json.dumps(messages[0]["content"]).encode()
        messages = messages[1:]
    if not messages or not all(_is_plain(each, "user", "assistant") for each in messages):
        return None
    return parts | {"messages": json.dumps(messages).encode()}


def _is_plain(message: Any, *roles: str) -> bool:
    return (
        isinstance(message, dict)
        and message.keys() == {"role", "content"}
        and message["role"] in roles
        and isinstance(message["content"], str)
    )
