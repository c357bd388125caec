"""What a scripted model says: a function of the prompt and max_tokens, nothing else.

Pure; imported by scripted.py inside Triton, and by tests that want to know what to expect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DEFAULT_LENGTH = 16
_DIRECTIVE = re.compile(r"\b(tokens|delay|interval)=(\d+)")


@dataclass(frozen=True)
class Script:
    prompt_tokens: int
    length: int
    delay_s: float
    interval_s: float

    @classmethod
    def of(
        cls,
        prompt: str,
        max_tokens: int,
        *,
        length: int = DEFAULT_LENGTH,
        delay_ms: int = 0,
        interval_ms: int = 0,
    ) -> Script:
        """The keyword arguments are the model's defaults; `tokens=`, `delay=`, `interval=` in the prompt win."""
        said = {name: int(number) for name, number in _DIRECTIVE.findall(prompt)}
        return cls(
            prompt_tokens=len(prompt.split()),
            length=min(max_tokens, said.get("tokens", length)),
            delay_s=said.get("delay", delay_ms) / 1000,
            interval_s=said.get("interval", interval_ms) / 1000,
        )

    def token(self, index: int) -> str:
        return f"tok{index}" if index == 0 else f" tok{index}"

    def text(self, length: int | None = None) -> str:
        return "".join(self.token(index) for index in range(self.length if length is None else length))
