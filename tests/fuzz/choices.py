"""Bytes as a source of choices, so that a fuzzer which only knows bytes can make anything: numbers, texts, whole JSON values.

Invariant: the same bytes give the same choices, and bytes that have run out give the first of everything, so that every input
ends.
"""

import json
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")

MAX_DEPTH = 4
_CHARACTERS = (
    "a",
    "b",
    "\n",
    '"',
    "\\",
    " ",
    "é",
    "那",
    "😀",
    "\x00",
    "\u2028",
    "\ufffd",
    "½",
    "ﬃ",
    "{",
    "}",
    ":",
    "data",
)
_SPACES = ("", "", "", " ", "\n", "\t", " \r\n ")


class Choices:
    """One input, read from its start to its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def more(self) -> bool:
        """Whether anything is left."""
        return self._at < len(self._data)

    def byte(self) -> int:
        """The next byte; 0 at the end."""
        value = self._data[self._at] if self.more else 0
        self._at += 1
        return value

    def below(self, bound: int) -> int:
        """A number from 0 to `bound` - 1."""
        value = self.byte()
        if bound > 256:
            value = value << 8 | self.byte()
        return value % bound

    def pick(self, options: Sequence[T]) -> T:
        """One of them."""
        return options[self.below(len(options))]

    def flag(self) -> bool:
        """Yes or no."""
        return self.byte() % 2 == 1

    def take(self, length: int) -> bytes:
        """So many bytes, or what is left."""
        part = self._data[self._at : self._at + length]
        self._at += length
        return part

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(max(0, len(self._data) - self._at))

    def text(self, characters: Sequence[str] = _CHARACTERS, longest: int = 12) -> str:
        """A short text of these characters."""
        return "".join(self.pick(characters) for _ in range(self.below(longest + 1)))

    def parts(self, whole: bytes, most: int = 8) -> list[bytes]:
        """The whole in parts, some perhaps empty."""
        places = sorted(self.below(len(whole) + 1) for _ in range(self.below(most + 1)))
        return [whole[start:end] for start, end in zip([0, *places], [*places, len(whole)], strict=True)]

    def number(self) -> Any:
        """What may stand where a number is expected."""
        return self.pick(
            (1, 0, 2, 7, 31, -1, 2**31 - 1, 2**31, 2**64, -(2**63), 1.5, 12.0, True, False, None, "5", [], {})
        )

    def value(self, depth: int = 0) -> Any:
        """Any JSON value, not deep."""
        kind = self.below(8 if depth < MAX_DEPTH else 6)
        if kind == 0:
            return self.text()
        if kind == 1:
            return self.number()
        if kind == 2:
            return self.below(65_536)
        if kind < 6:
            return (None, True, "")[kind - 3]
        if kind == 6:
            return [self.value(depth + 1) for _ in range(self.below(4))]
        return {self.text(longest=3): self.value(depth + 1) for _ in range(self.below(4))}

    def member(self, name: str, value: Any) -> tuple[str, str]:
        """A member as JSON text: its name and its value, in one of the many ways to write each."""
        written = json.dumps(name)
        if name and self.below(8) == 7:
            written = f'"\\u{ord(name[0]):04x}{json.dumps(name[1:])[1:]}'
        ascii_only = self.flag()
        separators = self.pick(((",", ":"), (", ", ": "), (" ,\n", "\t:")))
        return written, json.dumps(value, ensure_ascii=ascii_only, separators=separators)

    def object_text(self, members: Sequence[tuple[str, Any]]) -> str:
        """An object of these members as JSON text, doubled names included, with white space between its tokens."""
        written = [self.member(name, value) for name, value in members]
        space = [self.pick(_SPACES) for _ in range(4)]
        inner = f"{space[0]},{space[1]}".join(f"{name}{space[2]}:{space[3]}{value}" for name, value in written)
        return f"{space[1]}{{{space[0]}{inner}{space[2]}}}{space[3]}"
