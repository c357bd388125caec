"""The top-level members of a JSON object, found and changed in its own text. Pure; the edge and the router import it.

What a worker wrote is relayed byte for byte, so a member is taken out or given another value by cutting the text, never by
writing the object anew. The text must already be known to be valid JSON: nothing is checked here.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

# A text is passed over in runs, not letter by letter, which takes six times as long.
_TEXT = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_TOKEN = re.compile(_TEXT + rb"|[{}\[\],:]", re.DOTALL)
_SPACE = b" \t\r\n"
# Any interpreter's settings allow as many.
_MAX_DIGITS = 640
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class NotJson(ValueError):
    """The text is not JSON. Says nothing of the text itself, which may be somebody's answer."""


@dataclass(frozen=True, slots=True)
class Span:
    """Where one member stands in the text: `"name": value`, without the white space around it."""

    name: str
    start: int
    value: int
    end: int


def parse(text: bytes) -> Any:
    """The value of a JSON text. NotJson for anything else: NaN, bottomless nesting and bytes that are no UTF-8 included.

    Numbers may be of any size: what is too large for a float is infinite, and no count."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        # A worker that cuts an emoji between two frames escapes half a surrogate pair in each: JSON, but not for orjson.
        # Decoded here, since of bytes that library guesses the encoding and takes what is none.
        source = text.decode("utf-8")
        try:
            return json.loads(source, parse_constant=_refuse)
        except (NotJson, json.JSONDecodeError):
            raise
        except ValueError:
            # More digits than Python makes a number of.
            return json.loads(source, parse_constant=_refuse, parse_int=_integer)
    except (ValueError, RecursionError):
        raise NotJson("not JSON") from None


def unmarked(text: bytes) -> bytes:
    """The text without a byte order mark before it, which some servers write and JSON does not know."""
    return text.removeprefix(_BYTE_ORDER_MARK)


def _integer(digits: str) -> Any:
    """A whole number; one beyond all bounds as a fraction beyond all bounds is read, so that no time goes into its digits."""
    if len(digits) <= _MAX_DIGITS:
        return int(digits)
    return -math.inf if digits.startswith("-") else math.inf


def _refuse(_constant: str) -> Any:
    raise NotJson("not JSON")


def spans(text: bytes) -> list[Span]:
    """The members of the object in `text`, in order."""
    found: list[Span] = []
    depth = 0
    key: re.Match[bytes] | None = None
    colon = -1
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first == 0x22:  # a string
            if depth == 1 and key is None:
                key = token
        elif first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
            if depth == 0:
                if key is not None:
                    found.append(_span(text, key, colon, token.start()))
                break
        elif depth == 1:
            if first == 0x3A:  # a colon
                colon = token.end()
            else:
                assert key is not None, "the text is not the JSON that it was said to be"
                found.append(_span(text, key, colon, token.start()))
                key = None
    return found


def _span(text: bytes, key: re.Match[bytes], colon: int, end: int) -> Span:
    start = colon
    while text[start] in _SPACE:
        start += 1
    while text[end - 1] in _SPACE:
        end -= 1
    return Span(json.loads(key.group()), key.start(), start, end)


def replace(text: bytes, values: Mapping[str, bytes | None]) -> bytes:
    """The object with other values for some members: None takes a member out, a name that is not there is added last.

    A name that gets another value and stands there twice stands once in the result: two readers might take different ones.
    """
    members = spans(text)
    added = {name: value for name, value in values.items() if value is not None}
    written: set[str] = set()
    opening = text.index(b"{") + 1
    parts = [text[: members[0].start] if members else text[:opening]]
    for index, member in enumerate(members):
        added.pop(member.name, None)
        value = values.get(member.name, text[member.value : member.end])
        if value is None or (member.name in written and member.name in values):
            continue
        written.add(member.name)
        # The comma and the white space before a member are its own, so that what stays keeps its looks.
        comma = text[members[index - 1].end : member.start] if len(parts) > 1 else b""
        parts.append(comma + text[member.start : member.value] + value)
    for name, value in added.items():
        comma = b"," if len(parts) > 1 else b""
        parts.append(comma + json.dumps(name).encode() + b":" + value)
    parts.append(text[members[-1].end if members else opening :])
    return b"".join(parts)


def set_model(text: bytes, model: bytes) -> bytes:
    """The object with another value (JSON text) for its member `model`, which it has."""
    # A key cannot hide in a string, where its quotes are escaped: if the name stands there once, that is the place. Unless it
    # is written with escapes (its letters are \u0064 to \u006f), and what stands there is another object's.
    if text.count(b'"model"') == 1 and b"\\u006" not in text:
        place = _MODEL.search(text)
        if place is not None:
            return text[: place.start(1)] + model + text[place.end(1) :]
    return replace(text, {"model": model})


_MODEL = re.compile(rb'"model"\s*:\s*(' + _TEXT + rb")", re.DOTALL)
