"""A play: what a scripted model is told to send, response by response, by a prompt that is a JSON object.

    {"play": [{"text": "Hel", "out": 1}, {"hex": "c3", "out": 1}, {"hex": "a9", "out": 1}, {"error": ["INTERNAL", "broken"]}]}

So one model shows every way in which an answer may be odd. Pure; imported by scripted.py inside Triton, and by tests that
want a prompt.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

PROMPT_TOKENS = 3


@dataclass(frozen=True)
class Said:
    """One response. None: the tensor is not there."""

    text: bytes | None
    # Further elements of the text's tensor.
    more_texts: tuple[bytes, ...]
    # A number, a nested list of numbers (which is the shape), or a text in place of a number.
    prompt_count: Any
    completion_count: Any
    finish: str | None
    stop: str | None
    # The name of a code and a message.
    error: tuple[str, str] | None
    wait_s: float
    # numpy's name of the counts' type, in place of the declared one.
    count_type: str | None
    # The final flag comes along with it, and not in an empty response after it.
    final: bool

    @property
    def is_empty(self) -> bool:
        return self.text is self.prompt_count is self.completion_count is self.finish is self.stop is None


def prompt(*responses: dict[str, Any]) -> str:
    """The prompt for these: `text`, or `hex` for bytes that are no text yet, or `fill` for so many bytes; `in` (3) and `out`
    (1) for counts, `type` for their type; `more` texts beside the first; `finish`, `stop`; `error`; `wait_ms` before it;
    `final` for the last."""
    return json.dumps({"play": list(responses)})


def play_of(text: str) -> list[Said] | None:
    """The play in a prompt, if it is one."""
    if not text.startswith('{"play":'):
        return None
    return [_said(entry) for entry in json.loads(text)["play"]]


def _said(entry: dict[str, Any]) -> Said:
    words: bytes | None = None
    if "hex" in entry:
        words = bytes.fromhex(entry["hex"])
    elif "fill" in entry:
        words = b"x" * entry["fill"]
    elif entry.get("text") is not None:
        words = entry["text"].encode()
    return Said(
        text=words,
        more_texts=tuple(text.encode() for text in entry.get("more", ())),
        prompt_count=entry.get("in", PROMPT_TOKENS),
        completion_count=entry.get("out", 1),
        finish=entry.get("finish"),
        stop=entry.get("stop"),
        error=tuple(entry["error"]) if "error" in entry else None,
        wait_s=entry.get("wait_ms", 0) / 1000,
        count_type=entry.get("type"),
        final=entry.get("final", False),
    )
