"""Chat messages into a prompt, by the template that the model was trained with. Pure but for reading a template's file.

Templates come from the operator; messages and `chat_template_kwargs` from clients, as data only. A client's variable may
not replace one of ours. What the template refuses is the client's fault and passed on in the template's words; any other
failure is the operator's, and nothing of the template is told. Imported by the Triton transport.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from jinja2 import Template, TemplateSyntaxError
from speedinfer.router.v1 import frame_pb2

from services.router.transport.port import WorkerFailure
from services.router.transport.template_budget import Excess, budget, step
from services.router.transport.template_sandbox import Refusal, environment, strftime_now
from services.router.transport.triton_errors import MAX_TEXT, rejected

MAX_TEMPLATE_BYTES = 1024 * 1024
# A body has at most 32 MiB; a template that makes more of it than this is broken.
MAX_PROMPT_CHARS = 64 * 1024 * 1024

# Used where a worker names no template: readable, but hardly what any model was trained with.
DEFAULT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
DEFAULT_WARNING = (
    "no 'chat_template' is set: messages are written as plain 'role: content' lines, which no model was trained with; set "
    "the model's own template (inline or a path)"
)

# Variables that are ours or Jinja's own; a client's value for one of them is left out.
_OWN_VARIABLES = frozenset(environment().globals) | frozenset({
    "messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token", "chat_template", "loop",
    "strftime_now", "template", "tokenize", "continue_final_message",
})  # fmt: skip

# The names by which a message's reasoning comes, in the order of preference; templates read the first, some `thinking`.
_REASONING = ("reasoning_content", "thinking", "reasoning")


class TemplateProblem(Exception):
    """A template cannot be used; the text is for the operator."""


class ChatTemplate:
    """A compiled template and the special tokens that it may write."""

    def __init__(
        self,
        source: str,
        *,
        bos_token: str | None = None,
        eos_token: str | None = None,
        max_chars: int = MAX_PROMPT_CHARS,
    ) -> None:
        self.bos_token = bos_token
        self._max_chars = max_chars
        self._tokens = {
            name: token for name, token in (("bos_token", bos_token), ("eos_token", eos_token)) if token is not None
        }
        try:
            self._template: Template = environment().from_string(source)
        except TemplateSyntaxError as error:
            raise TemplateProblem(f"line {error.lineno}: {error.message}") from None
        except Exception as error:
            raise TemplateProblem(f"it does not compile ({type(error).__name__})") from None

    def render(self, messages: Any, variables: Mapping[str, Any], now: datetime, *, strip_bos: bool) -> str:
        """The prompt for a client's `messages`. `strip_bos`: the model adds one itself. WorkerFailure as said above."""
        context: dict[str, Any] = {name: value for name, value in variables.items() if name not in _OWN_VARIABLES}
        context |= self._tokens
        context |= {
            "messages": normalise(messages),
            "tools": None,
            "documents": None,
            "add_generation_prompt": True,
            "strftime_now": strftime_now(now),
        }
        try:
            prompt = self._written(context)
        except Excess as excess:
            raise rejected(str(excess), param="messages", http_status=413) from None
        except Refusal as refusal:
            raise rejected(
                str(refusal)[:MAX_TEXT] or "the model's chat template refuses this", param="messages"
            ) from None
        except Exception as error:
            raise WorkerFailure(
                frame_pb2.FAILURE_REASON_UPSTREAM,
                "the model's chat template failed",
                detail=f"the chat template failed with {type(error).__name__}",
                # The worker did nothing; a client's odd message must not open its circuit.
                counts_against_worker=False,
            ) from None
        if strip_bos and self.bos_token and prompt.startswith(self.bos_token):
            prompt = prompt[len(self.bos_token) :]
        return prompt

    def _written(self, context: Mapping[str, Any]) -> str:
        pieces: list[str] = []
        length = 0
        with budget():
            for piece in self._template.generate(context):
                step()
                length += len(piece)
                if length > self._max_chars:
                    raise Excess("the rendered prompt is too long")
                pieces.append(piece)
        return "".join(pieces)


def load(setting: str) -> str:
    """The template that a registration means: inline, or the file at a path. TemplateProblem if it cannot be read."""
    if "{{" in setting or "{%" in setting or "\n" in setting:
        return setting
    path = Path(setting)
    try:
        if path.exists() and not path.is_file():
            # A pipe would be waited for.
            raise TemplateProblem(f"{setting} is not a file")
        with path.open("rb") as file:
            content = file.read(MAX_TEMPLATE_BYTES + 1)
        if len(content) > MAX_TEMPLATE_BYTES:
            raise TemplateProblem(f"the file {setting} is larger than {MAX_TEMPLATE_BYTES} bytes")
        return content.decode()
    except OSError as error:
        raise TemplateProblem(f"the file {setting} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, ValueError):
        raise TemplateProblem(f"the file {setting} is not UTF-8 text") from None


def normalise(messages: Any) -> list[dict[str, Any]]:
    """Messages as templates expect them: content a string, tool arguments an object, no role that only OpenAI knows."""
    if not isinstance(messages, list) or not messages:
        raise rejected("'messages' must be a list of at least one message", param="messages")
    return [_message(index, message) for index, message in enumerate(messages)]


def _message(index: int, message: Any) -> dict[str, Any]:
    place = f"messages[{index}]"
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise rejected(f"'{place}' must be an object with a role", param=place)
    # As Hugging Face has it: what is null is not there. Templates ask whether a member is defined.
    plain = {name: value for name, value in message.items() if value is not None}
    if plain["role"] == "developer":
        # OpenAI's newer name of it.
        plain["role"] = "system"
    plain["content"] = _content(f"{place}.content", message.get("content"))
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        plain["tool_calls"] = [_tool_call(call) for call in calls]
    reasoning = next((plain[name] for name in _REASONING if name in plain), None)
    if reasoning is not None:
        plain = {"thinking": reasoning, **plain, "reasoning_content": reasoning}
    return plain


def _content(place: str, content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise rejected(f"'{place}' must be a string or a list of text parts", param=place)
    texts: list[str] = []
    for index, part in enumerate(content):
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        if not isinstance(text, str):
            raise rejected(f"'{place}[{index}]' is no text; this model takes text only", param=f"{place}[{index}]")
        texts.append(text)
    return "\n".join(texts)


def _tool_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    if not isinstance(arguments, str) or not isinstance(function, dict):
        return call
    return {**call, "function": {**function, "arguments": _arguments(arguments)}}


def _arguments(text: str) -> Any:
    """Arguments as an object. What a model wrote as no JSON at all stays as it is, so that the conversation can go on."""
    if not text.strip():
        return {}
    try:
        # The first knows lone surrogates and NaN for what they are, the second keeps integers of any size.
        orjson.loads(text)
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
