"""A model's text, response by response, into what a client may see: deltas of whole characters, cut at a stop sequence.

Invariants: what was given out is never taken back; text that could still turn out to be a stop sequence, or half a
character, is held until that is known or the answer ends. Pure; imported by the Triton transport.
"""

import codecs
from collections.abc import Sequence

# What a tokenizer puts where a character is not complete yet.
_REPLACEMENT = "\ufffd"


class DeltaText:
    """Responses that each carry only what is new."""

    def __init__(self) -> None:
        # A character may be cut between two responses.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self, text: bytes) -> str:
        """What is new and whole."""
        return self._decoder.decode(text)

    def end(self) -> str:
        """What was held back; half a character becomes U+FFFD."""
        return self._decoder.decode(b"", final=True)


class CumulativeText:
    """Responses that each carry all the text up to now."""

    def __init__(self) -> None:
        self._sent = 0
        self._whole = ""

    def read(self, text: bytes) -> str:
        """What is new and whole. A replacement character at the end is the first half of a character to come."""
        self._whole = text.decode("utf-8", "replace")
        return self._take(len(self._whole.rstrip(_REPLACEMENT)))

    def end(self) -> str:
        """What was held back."""
        return self._take(len(self._whole))

    def _take(self, length: int) -> str:
        # A text that became shorter or different in what was given out cannot be mended; the rest goes on after it.
        delta = self._whole[self._sent : length]
        self._sent = max(self._sent, length)
        return delta


class StopCutter:
    """Ends a text before the first stop sequence in it; holds back what may be the beginning of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.matched = False

    def read(self, text: str) -> str:
        """What may be given out now. Empty for ever once `matched`."""
        if self.matched:
            return ""
        if not self._stops:
            return text
        whole = self._held + text
        found = [at for at in (whole.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.matched, self._held = True, ""
            return whole[: min(found)]
        keep = max(_overlap(whole, stop) for stop in self._stops)
        self._held = whole[len(whole) - keep :]
        return whole[: len(whole) - keep]

    def end(self) -> str:
        """What was held back and turned out to be text."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that begins `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0


class EchoCutter:
    """Leaves out an exact copy of the prompt at the start of an answer."""

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt
        self._held = ""

    def read(self, text: str) -> str:
        """What is not, and cannot become, the prompt's copy."""
        if not self._prompt:
            return text
        whole = self._held + text
        if whole.startswith(self._prompt):
            rest = whole[len(self._prompt) :]
        elif self._prompt.startswith(whole):
            self._held = whole
            return ""
        else:
            rest = whole
        self._prompt = self._held = ""
        return rest

    def end(self) -> str:
        """What was held back and never became the whole prompt."""
        held, self._held = self._held, ""
        return held
