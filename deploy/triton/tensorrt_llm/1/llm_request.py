"""One request: from the tensors' values to what the LLM API is asked. Pure; imported by model.py.

Absent optional tensors stay absent, so that the engine's own defaults hold. What cannot be honoured is refused by the
tensor's name, never dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PREFIX = "sampling_param_"
# Of one element each, passed on as they are.
_PLAIN = ("top_k", "top_p", "temperature", "frequency_penalty", "presence_penalty", "max_tokens", "seed")


class Refused(ValueError):
    """The request is at fault; the text is for its sender."""


@dataclass(frozen=True)
class Asked:
    prompt: str
    streaming: bool
    # Keyword arguments of SamplingParams.
    sampling: Mapping[str, Any]
    # The whole answer begins with the prompt. Streams never do.
    echoes: bool
    finish_reason: bool
    stop_reason: bool
    cumulative_logprob: bool


def read(tensors: Mapping[str, Sequence[Any]], *, add_special_tokens: bool) -> Asked:
    """`tensors`: input name -> its elements, text as bytes. Refused if they are no request."""
    prompt = texts(tensors, "text_input")
    if len(prompt) != 1:
        raise Refused(f"text_input must have one element, one prompt a request; got {len(prompt)}")
    streaming = flag(tensors, "streaming")
    return Asked(
        prompt=prompt[0],
        streaming=streaming,
        sampling=_sampling(tensors) | {"add_special_tokens": add_special_tokens},
        echoes=not streaming and not flag(tensors, f"{PREFIX}exclude_input_from_output"),
        finish_reason=flag(tensors, "return_finish_reason"),
        stop_reason=flag(tensors, "return_stop_reason"),
        cumulative_logprob=flag(tensors, "return_cumulative_logprob"),
    )


def without_stop(text: str, stop_reason: object) -> str:
    """A whole answer's text up to the stop word that ended it."""
    at = text.rfind(stop_reason) if isinstance(stop_reason, str) and stop_reason else -1
    return text[:at] if at >= 0 else text


def flag(tensors: Mapping[str, Sequence[Any]], name: str) -> bool:
    """False where the tensor is absent."""
    return bool(_single(tensors, name))


def texts(tensors: Mapping[str, Sequence[Any]], name: str) -> list[str]:
    try:
        return [value.decode() if isinstance(value, bytes) else str(value) for value in tensors.get(name, ())]
    except UnicodeDecodeError:
        raise Refused(f"{name} must be UTF-8") from None


def _sampling(tensors: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    # The prompt is never among the engine's output ids, so that only what was generated is counted; where the sender wants
    # it in front, model.py puts it there.
    sampling: dict[str, Any] = {"exclude_input_from_output": True}
    for name in _PLAIN:
        value = _single(tensors, f"{PREFIX}{name}")
        if value is not None:
            sampling[name] = value
    if sampling.get("max_tokens", 1) < 1:
        raise Refused(f"{PREFIX}max_tokens must be at least 1")
    if (_single(tensors, f"{PREFIX}best_of") or 1) != 1:
        # The tokens of the answers not chosen are not among the outputs, so nobody could count them.
        raise Refused(f"{PREFIX}best_of must be 1: this model counts the tokens of one answer")
    if sampling.get("temperature") == 0:
        # The LLM API documents temperatures above 0; the most likely token is meant.
        del sampling["temperature"]
        sampling["top_k"] = 1
    if sampling.get("top_k", 0) < 0:
        # Many senders' word for "all", which is the engine's default.
        del sampling["top_k"]
    stop = [word for word in texts(tensors, f"{PREFIX}stop") if word]
    if stop:
        # Told to leave stop words out, the engine takes their ids back and cannot be counted to the end, and a stream that has
        # sent a word's first half shows that half and nothing that tells what it was. So the word comes whole.
        sampling |= {"stop": stop, "include_stop_str_in_output": True}
    return sampling


def _single(tensors: Mapping[str, Sequence[Any]], name: str) -> Any:
    values = tensors.get(name)
    if values is None:
        return None
    if len(values) != 1:
        raise Refused(f"{name} must have one element; got {len(values)}")
    return values[0]
