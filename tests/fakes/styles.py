"""How a fake worker answers where no script says otherwise: as an OpenAI-compatible server, or as trtllm-serve does.

trtllm-serve's ways: a role frame with a space at its line's end, no `finish_reason` key before the last delta, unknown fields
refused, flat errors, usage only where `stream_options` is there.
"""

from collections.abc import Iterable
from typing import Any, Literal

from tests.fakes import scripts
from tests.fakes.scripts import Received, Step

Style = Literal["openai", "trtllm"]

PROMPT_TOKENS = 12
WORDS = ("Hello", ", ", "world", "!", " Bye.")
_TRTLLM_FIELDS = frozenset({
    "model", "messages", "prompt", "max_tokens", "max_completion_tokens", "stream", "stream_options", "temperature", "top_p",
    "n", "stop", "seed", "user", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "top_logprobs", "tools",
    "tool_choice", "response_format", "top_k", "min_p", "repetition_penalty", "chat_template_kwargs", "best_of", "min_tokens",
    "ignore_eos", "stop_token_ids", "use_beam_search", "parallel_tool_calls", "reasoning_effort", "echo",
})  # fmt: skip


def respond(style: Style, continuous: bool, request: Received) -> Iterable[Step]:
    """The steps of a good answer (or of the refusal that the style demands)."""
    body = request.json
    if style == "trtllm" and (unknown := [name for name in body if name not in _TRTLLM_FIELDS]):
        text = f"1 validation error: {unknown[0]}: Extra inputs are not permitted"
        return [scripts.json_answer({"error": text}, 400)]
    if request.path.endswith("/embeddings"):
        return [_embeddings(body)] if style == "openai" else [scripts.json_answer({"detail": "Not Found"}, 404)]
    limit = body.get("max_tokens") or body.get("max_completion_tokens") or len(WORDS)
    words = WORDS[:limit]
    reason = "length" if len(words) == limit < len(WORDS) else "stop"
    chat = request.path.endswith("/chat/completions")
    if not body.get("stream"):
        return [_whole(body, chat, "".join(words), scripts.usage(PROMPT_TOKENS, len(words)), reason)]
    return _stream(style, continuous, body, chat, words, reason)


def _stream(
    style: Style, continuous: bool, body: dict[str, Any], chat: bool, words: tuple[str, ...], reason: str
) -> list[Step]:
    options = body.get("stream_options")
    asked = options is not None and options.get("include_usage", style == "trtllm")
    counting = continuous and options is not None and options.get("continuous_usage_stats", False)
    model = str(body["model"])

    def one(content: dict[str, Any], count: int, finish: str | None = None) -> dict[str, Any]:
        choice: dict[str, Any] = (
            {"index": 0, "delta": content} if chat else {"index": 0, "text": content.get("content", "")}
        )
        if finish is not None or style == "openai":
            choice["finish_reason"] = finish
        members: dict[str, Any] = {"choices": [choice]}
        if counting:
            members["usage"] = scripts.usage(PROMPT_TOKENS, count)
        return scripts.frame(model, **members)

    steps: list[Step] = [scripts.SSE_HEAD]
    if chat:
        role = {"role": "assistant"} if style == "trtllm" else {"role": "assistant", "content": ""}
        steps.append(scripts.event(one(role, 0), " \n\n" if style == "trtllm" else "\n\n"))
    for number, word in enumerate(words, 1):
        last = style == "trtllm" and number == len(words)
        steps.append(scripts.event(one({"content": word}, number, reason if last else None)))
    if style == "openai":
        steps.append(scripts.event(one({}, len(words), reason)))
    if asked:
        counts = scripts.usage(PROMPT_TOKENS, len(words), cached=0 if style == "trtllm" else None)
        steps.append(scripts.event(scripts.frame(model, choices=[], usage=counts)))
    return [*steps, scripts.event(scripts.DONE), scripts.LAST_CHUNK]


def _whole(body: dict[str, Any], chat: bool, text: str, counts: dict[str, Any], reason: str) -> bytes:
    value = scripts.chat_whole(str(body["model"]), text, counts, reason)
    if not chat:
        value["object"] = "text_completion"
        value["choices"] = [{"index": 0, "text": text, "finish_reason": reason}]
    return scripts.json_answer(value)


def _embeddings(body: dict[str, Any]) -> bytes:
    data = [{"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}]
    counts = {"prompt_tokens": 2, "total_tokens": 2}
    return scripts.json_answer({"object": "list", "data": data, "model": body["model"], "usage": counts})
