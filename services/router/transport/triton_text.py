"""A model's text, response by response, into what a client may see: deltas of whole characters, cut at a stop sequence.

Invariants: what was given out is never taken back; text that could still turn out to be a stop sequence, or half a
character, is held until that is known or the answer ends. Pure; imported by the Triton transport.
"""

import codecs
from collections.abc import Sequence

from services.router.transport.triton_errors import invalid_response

# What a tokenizer puts where a character is not complete yet.
_REPLACEMENT = "\ufffd"
# How far a rewritten text is searched for the end of the one before, and how much of it is no accident.
_REWRITTEN_CHARS = 32
_SURE_CHARS = 4


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
    """Responses that each carry all the text up to now. WorkerFailure where one plainly does not.

    What was given out cannot be taken back. A text that became shorter is waited for until it is longer again; one that was
    rewritten on the way (detokenizers join words late) goes on where the end of what was given out stands in it now. One that
    has little in common with what was given out is another text, and refused, whether anybody saw the first or not."""

    def __init__(self) -> None:
        # The text as it was last, and the part of it that was given out.
        self._whole = ""
        self._given = ""

    def read(self, text: bytes) -> str:
        """What is new and whole. A replacement character at the end is the first half of a character to come."""
        if not text:
            return ""
        self._whole = text.decode("utf-8", "replace")
        return self._take(self._whole.rstrip(_REPLACEMENT))

    def end(self) -> str:
        """What was held back."""
        return self._take(self._whole)

    def _take(self, settled: str) -> str:
        if self._given.startswith(settled):
            return ""
        if not settled.startswith(self._given):
            place = self._place(settled)
            if len(settled) <= len(self._given):
                return ""
            self._given = settled[:place]
        delta = settled[len(self._given) :]
        self._given = settled
        return delta

    def _place(self, settled: str) -> int:
        """Where a rewritten text goes on."""
        given, now = "".join(self._given.split()), "".join(settled.split())
        shorter = min(len(given), len(now))
        kept = next((at for at in range(shorter) if given[at] != now[at]), shorter)
        if 2 * kept < shorter:
            # No detokenizer rewrites most of a text: this is another one, or only what is new.
            raise invalid_response("the text so far does not begin as it began; 'text_mode' says what is sent")
        if kept == len(given):
            # Only white space changed.
            return _after(settled, kept)
        for length in range(min(len(self._given), _REWRITTEN_CHARS), _SURE_CHARS - 1, -1):
            ends = _ends(settled[: len(self._given) + _REWRITTEN_CHARS], self._given[-length:])
            if ends:
                # The text may hold the same words more than once; where they stood before is nearest.
                return min(ends, key=lambda end: abs(end - len(self._given)))
        return len(self._given)


def _after(text: str, letters: int) -> int:
    """Where so many characters that are no white space have gone by."""
    for at, character in enumerate(text):
        if not letters:
            return at
        letters -= not character.isspace()
    return len(text)


def _ends(text: str, part: str) -> list[int]:
    """Where the copies of a part end near the end of a text; none overlap."""
    ends: list[int] = []
    at = text.find(part, max(0, len(text) - 4 * _REWRITTEN_CHARS - len(part)))
    while at >= 0:
        ends.append(at + len(part))
        at = text.find(part, at + len(part))
    return ends


class StopCutter:
    """Ends a text before the first stop sequence in it; holds back what may be the beginning of one.

    The first is the one that is complete first, and of two that end together the longer: so it does not matter in which
    pieces the text comes."""

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
        found = [(at + len(stop), at) for stop in self._stops if (at := whole.find(stop)) >= 0]
        if found:
            self.matched, self._held = True, ""
            _, begin = min(found)
            return whole[:begin]
        keep = max(_overlap(whole, stop, len(stop) - 1) for stop in self._stops)
        self._held = whole[len(whole) - keep :]
        return whole[: len(whole) - keep]

    def end(self) -> str:
        """What was held back and turned out to be text."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, beginning_of: str, longest: int) -> int:
    """The length of the longest end of `text`, up to `longest`, that `beginning_of` begins with."""
    for length in range(min(len(text), longest), 0, -1):
        if text.endswith(beginning_of[:length]):
            return length
    return 0


class EosCutter:
    """Leaves out the end-of-text token where it is the very end of an answer, once: models whose postprocessing does not skip
    special tokens leave it there. Anywhere else it is text like any other."""

    def __init__(self, eos_token: str) -> None:
        self._eos = eos_token
        self._held = ""

    def read(self, text: str) -> str:
        """What is not, and cannot become, that token at the end."""
        if not self._eos or not text:
            return text
        whole = self._held + text
        keep = _overlap(whole, self._eos, len(self._eos))
        self._held = whole[len(whole) - keep :]
        return whole[: len(whole) - keep]

    def end(self) -> str:
        """What was held back, unless it is the token."""
        held, self._held = self._held, ""
        return "" if held == self._eos else held


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
