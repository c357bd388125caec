"""How a fake worker answers where no script says otherwise: as an OpenAI-compatible server, as trtllm-serve, or as Triton's
own OpenAI frontend does.

trtllm-serve's ways: a role frame with a space at its line's end, no `finish_reason` key before the last delta, keys of its own
(`avg_decoded_tokens_per_iter`, `stop_reason`), unknown fields refused with a bare text, flat errors, usage only where
`stream_options` is there, which is refused where nothing streams.

Triton's: unknown fields are refused as well, errors are `{"detail": ...}`, a model that it does not know is a 400,
`finish_reason` is always `stop`, and usage comes only from models with counting tensors.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tests.fakes import scripts
from tests.fakes.canary_words import ANSWER
from tests.fakes.scripts import Received, Step

Style = Literal["openai", "trtllm", "triton-openai"]
ALL: tuple[Style, ...] = ("openai", "trtllm", "triton-openai")

PROMPT_TOKENS = 12
WORDS = ("Hello", ", ", "world", "!", " Bye.")
# The request models of chats and of completions, without what no gateway may send.
_TRTLLM_SHARED = frozenset({
    "model", "max_tokens", "stream", "stream_options", "temperature", "top_p", "n", "stop", "seed", "user",
    "frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "response_format", "echo", "best_of",
    "use_beam_search", "top_k", "top_p_min", "min_p", "repetition_penalty", "length_penalty", "early_stopping",
    "stop_token_ids", "include_stop_str_in_output", "ignore_eos", "min_tokens", "skip_special_tokens",
    "spaces_between_special_tokens", "truncate_prompt_tokens", "add_special_tokens", "thinking_token_budget",
})  # fmt: skip
_TRTLLM_FIELDS = {
    "chat/completions": _TRTLLM_SHARED | {
        "messages", "max_completion_tokens", "top_logprobs", "tools", "tool_choice", "parallel_tool_calls",
        "reasoning_effort", "thinking", "add_generation_prompt", "documents", "chat_template_kwargs",
    },
    "completions": _TRTLLM_SHARED | {"prompt", "suffix", "detokenize"},
}  # fmt: skip
_TRITON_SHARED = frozenset({
    "model", "max_tokens", "stream", "stream_options", "temperature", "top_p", "n", "stop", "seed", "user",
    "frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "min_tokens", "ignore_eos",
})  # fmt: skip
_TRITON_FIELDS = {
    "chat/completions": _TRITON_SHARED | {
        "messages", "max_completion_tokens", "top_logprobs", "response_format", "tools", "tool_choice",
        "function_call", "functions",
    },
    "completions": _TRITON_SHARED | {"prompt", "suffix", "best_of", "echo"},
}  # fmt: skip
# Where servers are asked how many tokens a prompt has: vLLM and SGLang, and those that speak the Messages API.
COUNTING = ("/tokenize", "/v1/messages/count_tokens")
# What older builds of trtllm-serve refuse as well.
OLDER_LACK = frozenset({"user", "parallel_tool_calls", "logit_bias"})


@dataclass(frozen=True)
class Manner:
    """A style, and what of it is left to choose."""

    style: Style = "openai"
    # `continuous_usage_stats` is honoured.
    continuous: bool = False
    # Triton: the model has tensors that count.
    counts: bool = True
    # trtllm-serve: fields that this build does not know.
    lacks: Collection[str] = ()


def respond(manner: Manner, models: Collection[str], request: Received) -> Iterable[Step]:
    """The steps of a good answer (or of the refusal that the style demands)."""
    refusal = _refusal(manner, models, request)
    if refusal is not None:
        return [refusal]
    body = request.json
    if request.path.endswith("/embeddings"):
        return [_embeddings(body)] if manner.style == "openai" else [scripts.json_answer({"detail": "Not Found"}, 404)]
    limit = body.get("max_tokens") or body.get("max_completion_tokens") or len(WORDS)
    words = WORDS[:limit]
    reason = "length" if len(words) == limit < len(WORDS) and manner.style != "triton-openai" else "stop"
    chat = request.path.endswith("/chat/completions")
    if not body.get("stream"):
        return [_whole(manner, body, chat, words, reason)]
    return _Stream(manner, body, chat, words, reason).steps()


def count(path: str, tokens: int) -> bytes:
    """The answer on a route of COUNTING."""
    if path == "/tokenize":
        return scripts.json_answer({"count": tokens, "max_model_len": 4096, "tokens": list(range(min(tokens, 100)))})
    return scripts.json_answer({"input_tokens": tokens})


def is_ready(style: Style, path: str) -> bytes | None:
    """The answer on a route of health; None: there is no such route."""
    if path == "/health" and style != "triton-openai":
        return scripts.answer(200, b"")
    if path == "/health/ready" and style == "triton-openai":
        return scripts.answer(200, b"")
    return None


def _refusal(manner: Manner, models: Collection[str], request: Received) -> bytes | None:
    body = request.json
    if manner.style == "trtllm":
        known = _fields(_TRTLLM_FIELDS, request)
        unknown = [name for name in body if name not in known or name in manner.lacks]
        if unknown:
            text = f"[{{'type': 'extra_forbidden', 'loc': ('body', '{unknown[0]}'), 'msg': 'Extra inputs are not permitted'}}]"
            return scripts.json_answer({"error": text}, 400)
        if "stream_options" in body and not body.get("stream"):
            text = "Value error, Stream options can only be defined when `stream=True`."
            return scripts.json_answer({"error": text}, 400)
        if (body.get("max_tokens") or 1) < 1:
            flat = {"object": "error", "message": "max_tokens must be positive", "type": "BadRequestError"}
            return scripts.json_answer({**flat, "param": None, "code": 400}, 400)
    if manner.style == "triton-openai":
        return _triton_refusal(models, body, _fields(_TRITON_FIELDS, request))
    return None


def _fields(table: Mapping[str, Collection[str]], request: Received) -> Collection[str]:
    """The names that the request model of a route has; there is none where there is no route."""
    return next((fields for route, fields in table.items() if request.path.endswith(route)), request.json.keys())


def _triton_refusal(models: Collection[str], body: dict[str, Any], known: Collection[str]) -> bytes | None:
    prompt = body.get("messages", body.get("prompt", body.get("input")))
    if prompt is None:
        detail = [{"type": "missing", "loc": ["body", "messages"], "msg": "Field required", "input": {}}]
        return scripts.json_answer({"detail": detail}, 422)
    if body.get("model") not in models:
        return scripts.json_answer({"detail": f"Unknown model: {body.get('model')}"}, 400)
    for name in body:
        if name not in known:
            detail = [{"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted"}]
            return scripts.json_answer({"detail": detail}, 422)
    if body.get("n", 1) > 1:
        return scripts.json_answer({"detail": "Only n=1 is supported"}, 400)
    for name in ("logit_bias", "logprobs"):
        if body.get(name):
            return scripts.json_answer({"detail": f"{name} is not supported for this backend"}, 400)
    return None


class _Stream:
    """A good stream in a style."""

    def __init__(self, manner: Manner, body: dict[str, Any], chat: bool, words: tuple[str, ...], reason: str) -> None:
        self._style = manner.style
        self._body = body
        self._chat = chat
        self._words = words
        self._reason = reason
        options = body.get("stream_options")
        self._asked = (
            options is not None and manner.counts and options.get("include_usage", manner.style == "trtllm") is True
        )
        self._counting = manner.continuous and options is not None and options.get("continuous_usage_stats", False)

    def steps(self) -> list[Step]:
        """All of it."""
        steps: list[Step] = [scripts.SSE_HEAD]
        trtllm, total = self._style == "trtllm", len(self._words)
        if self._chat:
            role = {"role": "assistant"} if trtllm else {"role": "assistant", "content": ""}
            steps.append(scripts.event(self._one(role, 0), " \n\n" if trtllm else "\n\n"))
        for number, word in enumerate(self._words, 1):
            last = trtllm and number == total
            steps.append(scripts.event(self._one({"content": word}, number, self._reason if last else None)))
        if not trtllm:
            steps.append(scripts.event(self._one({}, total, self._reason)))
        if self._asked:
            counts = scripts.usage(PROMPT_TOKENS, total, cached=0 if trtllm else None)
            steps.append(scripts.event(self._frame(choices=[], usage=counts)))
        return [*steps, scripts.event(scripts.DONE), scripts.LAST_CHUNK]

    def _one(self, content: dict[str, Any], count: int, finish: str | None = None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0}
        if self._chat:
            choice["delta"] = content
        else:
            choice["text"] = content.get("content", "")
        if finish is not None or self._style != "trtllm":
            choice["finish_reason"] = finish
        if self._style == "trtllm" and count:
            choice["avg_decoded_tokens_per_iter"] = 1.0
        if self._style == "trtllm" and finish is not None:
            choice["stop_reason"] = None
        members: dict[str, Any] = {"choices": [choice]}
        if self._counting:
            members["usage"] = scripts.usage(PROMPT_TOKENS, count)
        return self._frame(**members)

    def _frame(self, **members: Any) -> dict[str, Any]:
        value = scripts.frame(str(self._body["model"]), **members)
        if not self._chat:
            value["object"] = "text_completion"
        if self._style == "triton-openai":
            value["id"] = f"cmpl-{ANSWER}"
        return value


def _whole(manner: Manner, body: dict[str, Any], chat: bool, words: tuple[str, ...], reason: str) -> bytes:
    counts = scripts.usage(PROMPT_TOKENS, len(words)) if manner.counts else None
    value = scripts.chat_whole(str(body["model"]), "".join(words), counts, reason)
    if not chat:
        value["object"] = "text_completion"
        value["choices"] = [{"index": 0, "text": "".join(words), "finish_reason": reason}]
    if manner.style == "trtllm":
        value["choices"][0] |= {"stop_reason": None, "avg_decoded_tokens_per_iter": 1.0}
    if manner.style == "triton-openai":
        value |= {"id": f"cmpl-{ANSWER}", "usage": counts}
    return scripts.json_answer(value)


def _embeddings(body: dict[str, Any]) -> bytes:
    data = [{"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}]
    counts = {"prompt_tokens": 2, "total_tokens": 2}
    return scripts.json_answer({"object": "list", "data": data, "model": body["model"], "usage": counts})
