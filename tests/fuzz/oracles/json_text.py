"""JSON by the standard library alone: strict values, and the members of an object as they are written.

The product reads with orjson, msgspec and a scanner of its own; none of them is used here.
"""

import contextlib
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

_SPACE = re.compile(r"[ \t\r\n]*")
# The product's parsers go deeper than Python's usual bound lets this one.
_DEEP = 10_000


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def value(text: bytes) -> Any:
    """The value of a text. ValueError if it is no JSON in UTF-8."""
    with _deep():
        return _DECODER.decode(text.decode("utf-8"))


def is_unicode(parsed: Any) -> bool:
    """Whether every string can be written as UTF-8: half a surrogate pair cannot."""
    try:
        with _deep():
            json.dumps(parsed, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def members(text: bytes) -> list[tuple[str, str]]:
    """Name (decoded) and text of the value of each member, in order, doubled names included. The text is a valid object."""
    source = text.decode("utf-8")
    with _deep():
        return _members(source)


def _members(source: str) -> list[tuple[str, str]]:
    at = _after_space(source, 0)
    assert source[at] == "{", "no object"
    at = _after_space(source, at + 1)
    found: list[tuple[str, str]] = []
    while source[at] != "}":
        name, at = _DECODER.raw_decode(source, at)
        at = _after_space(source, at)
        assert source[at] == ":", "no member"
        start = _after_space(source, at + 1)
        _, end = _DECODER.raw_decode(source, start)
        found.append((name, source[start:end]))
        at = _after_space(source, end)
        if source[at] == ",":
            at = _after_space(source, at + 1)
    return found


def _after_space(source: str, at: int) -> int:
    match = _SPACE.match(source, at)
    assert match is not None, "white space may be empty"
    return match.end()


@contextlib.contextmanager
def _deep() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(_DEEP)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
