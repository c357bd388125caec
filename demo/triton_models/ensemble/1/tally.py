"""Reads llama.cpp's chunks: the text, and how many tokens stand behind it.

Pure. llama.cpp counts upwards (`timings.predicted_n` so far), Triton's stock models report each response's own count;
`Tally` turns one into the other. Invariant: the counts taken add up to the `completion_tokens` of the final chunk,
also where a token had no text of its own (half a character, a stop word held back, the end token).
"""

from __future__ import annotations

import json
from typing import Any


class EngineError(Exception):
    """llama.cpp answered with an error object."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("message", error)))
        self.status = int(error.get("code", 500))


class Tally:
    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.generated = 0
        self.finished = False
        self._taken = 0

    def read(self, chunk: str) -> str:
        """The chunk's text, "" if it has none. Raises EngineError."""
        frame = json.loads(chunk)
        if "error" in frame:
            raise EngineError(frame["error"])
        timings = frame.get("timings")
        if timings is not None:
            # The prompt is what came from the cache and what had to be computed.
            self.prompt_tokens = timings["cache_n"] + timings["prompt_n"]
            self.generated = timings["predicted_n"]
        choice = frame["choices"][0] if frame.get("choices") else {}
        if choice.get("finish_reason") is not None:
            self.finished = True
        if usage := frame.get("usage"):
            self.prompt_tokens = usage["prompt_tokens"]
            self.generated = usage["completion_tokens"]
        return choice.get("text") or ""

    def take(self) -> int:
        """Tokens generated since the last take."""
        fresh = self.generated - self._taken
        self._taken = self.generated
        return fresh
