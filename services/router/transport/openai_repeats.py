"""Frames of a stream that are the one before with another text in it. Pure; `openai_frames.py` imports it.

Nearly every frame of a stream differs from the one before in a piece of text, and in its counts where the worker reports them
with each. What such a frame means is known from the one that was read in full, so that it needs no parsing of its own. Nothing
is guessed: what comes before and after the text must be the same bytes, the text itself must be the inside of a JSON string,
and counts are parsed. Every other frame is read in full.
"""

import re
from typing import Any, NamedTuple

from services.common import json_members
from services.router import usage
from services.router.transport.port import Chunk

# The inside of a JSON string. Left to the full reading: letters as escapes, in which a name may be written, and surrogates,
# which have a parser of their own.
_INSIDE = re.compile(
    rb'[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u(?!00[67]|[dD][89a-fA-F])[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*'
)
# The members of a choice, or of its delta, of which a text comes piece by piece.
_OPENINGS = {
    name: (b'"%s"' % name.encode(), re.compile(rb'"%s"\s*:\s*"' % name.encode()))
    for name in ("content", "reasoning_content", "reasoning", "text")
}
_USAGE = b'"usage"'
MAX_COUNTS_BYTES = 512


class _Around(NamedTuple):
    """A frame but for its text."""

    before: bytes
    after: bytes


class Repeat:
    """One frame as it was read in full, and what others like it are."""

    __slots__ = ("_after", "_before", "_choice", "_counts", "_is_relayed_whole", "_last", "_length", "_relayed",
                 "_usage", "_usage_frame", "served")  # fmt: skip

    def __init__(self, whole: _Around, relayed: _Around, choice: int | None, counts: usage.Usage | None) -> None:
        self._before, self._after = whole
        self._length = len(whole.before)
        self._relayed = relayed
        self._is_relayed_whole = relayed == whole
        self._choice = choice
        self._usage = counts
        # The text of the counts, and what follows it, if there is a member `usage`.
        self._counts: bytes | None = None
        self._last = b""
        # The usage frame up to the text, from there to the counts, and from there on, where the counts are some.
        self._usage_frame: tuple[bytes, bytes, bytes] | None = None
        # A frame has been like this one.
        self.served = False

    def read(self, text: bytes) -> Chunk | None:
        """The chunk that a frame is, if it is like this one; else None."""
        if not text.startswith(self._before):
            return None
        start = self._length
        end = _inside(text, start)
        if end == start:
            return None
        rest = text[end:]
        counts, told = self._counts, self._usage
        if counts is None:
            if rest != self._after:
                return None
        else:
            if not (rest.startswith(self._after) and rest.endswith(self._last)):
                return None
            written = rest[len(self._after) : len(rest) - len(self._last)]
            if written != counts:
                if self._usage_frame is None or (told := _read_counts(written)) is None:
                    return None
                counts = written
        said = text[start:end]
        if not said.isascii():
            try:
                said.decode()
            except UnicodeDecodeError:
                return None
        self.served = True
        payload = text if self._is_relayed_whole else b"".join((self._relayed.before, said, self._relayed.after))
        if self._usage_frame is None or counts is None:
            return Chunk(payload, True, usage_choice=self._choice)
        opening, middle, ending = self._usage_frame
        return Chunk(
            payload,
            True,
            usage=told,
            usage_choice=self._choice,
            usage_frame=b"".join((opening, said, middle, counts, ending)),
        )

    def with_usage(self, text: bytes, usage_frame: bytes | None, said: bytes, name: str) -> "Repeat | None":
        """This frame with its member `usage`, which must come after the text and stand there once; None if it does not."""
        if text.count(_USAGE) != 1:
            return None
        span = next((each for each in json_members.spans(text) if each.name == "usage"), None)
        end = self._length + len(said)
        if span is None or span.value < end:
            return None
        counts = text[span.value : span.end]
        self._counts, self._after, self._last = counts, text[end : span.value], text[span.end :]
        self._is_relayed_whole = False
        if usage_frame is None:
            return self
        around = _around(usage_frame, said, name)
        if around is None or around.after.count(counts) != 1:
            return None
        middle, _, ending = around.after.partition(counts)
        self._usage_frame = (around.before, middle, ending)
        return self


def learn(text: bytes, frame: dict[str, Any], chunk: Chunk, part: str) -> Repeat | None:
    """What frames like this one are; None if it is of no kind that repeats. `chunk` is what was read of it, `part` where a
    choice has its text: `text`, or an object that holds it."""
    choices = frame["choices"]
    if len(choices) != 1 or chunk.finished or chunk.payload is None or b"\n" in text:
        return None
    inner = choices[0] if part == "text" else choices[0][part]
    name = next((each for each in _OPENINGS if isinstance(inner.get(each), str) and inner[each]), None)
    if name is None or (name == "text") != (part == "text"):
        return None
    place = _place(text, name)
    if place is None:
        return None
    said = text[place[0] : place[1]]
    relayed = _around(chunk.payload, said, name)
    if relayed is None:
        return None
    whole = _Around(text[: place[0]], text[place[1] :])
    found = Repeat(whole, relayed, chunk.usage_choice, chunk.usage)
    return found.with_usage(text, chunk.usage_frame, said, name) if "usage" in frame else found


def _around(text: bytes, said: bytes, name: str) -> _Around | None:
    """The frame but for what it says; None unless it says that."""
    place = _place(text, name)
    if place is None or text[place[0] : place[1]] != said:
        return None
    return _Around(text[: place[0]], text[place[1] :])


def _place(text: bytes, name: str) -> tuple[int, int] | None:
    """Where the inside of the only member of that name stands, whose value is a text; None in all doubt.

    Without a backslash outside of it, what looks like that member's name and a colon is that."""
    quoted, opening = _OPENINGS[name]
    found = opening.search(text)
    if found is None or text.count(quoted) != 1:
        return None
    start = found.end()
    end = _inside(text, start)
    if end == start or text[end : end + 1] != b'"' or b"\\" in text[:start] or b"\\" in text[end:]:
        return None
    return start, end


def _inside(text: bytes, start: int) -> int:
    """Where the inside of a JSON string that begins at `start` ends."""
    found = _INSIDE.match(text, start)
    return start if found is None else found.end()


def _read_counts(written: bytes) -> usage.Usage | None:
    """What another frame's counts say; None if that is not certain, or nothing."""
    if (
        len(written) > MAX_COUNTS_BYTES
        or not (written.startswith(b"{") and written.endswith(b"}"))
        or b"\\" in written
        # Words that make the full reading look closer.
        or b"error" in written
        or b"finish" in written
    ):
        return None
    try:
        return usage.from_openai(json_members.parse(written))
    except json_members.NotJson:
        return None
