"""A client's JSON object, checked strictly and split into its top-level members. Pure; request modules import it.

Two parsers read each body: one that is strict about everything (UTF-8, surrogates, NaN, depth) and gives values to check, and
one that leaves the members' text as the client wrote it, to be passed on. A worker's is the third. What two of them could
read differently is refused: a name that stands twice in one object, at any depth.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import orjson

from services.common import json_members
from services.edge.openai_errors import Refused, invalid

MAX_MEMBERS = 1024
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
# The end of a member's name; as bytes also in some texts, so that this finds too many rather than too few.
_NAME_END = re.compile(rb'"[ \t\r\n]*:')
# One backslash before the quote: the name is one in a text, such as a tool call's arguments.
_IN_TEXT = re.compile(rb'(?<!\\)\\"[ \t\r\n]*:')
# How much is searched at once: other threads wait for it.
_STRIDE_BYTES = 1024 * 1024
_MAX_SHOWN = 64
# Each costs a hundred bytes of memory and more, whatever its text is.
MAX_CONTAINERS = 128 * 1024
MAX_NAMES = 256 * 1024
MAX_VALUES = 2 * 1024 * 1024
_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SOME_TEXTS = re.compile(rb'(?:[^"]*+"(?:[^"\\]|\\.)*+"){1,4096}+', re.DOTALL)


def parse(body: bytes, max_depth: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The values and the texts of an object's members. Refused (400) for anything that is no JSON object."""
    if not body.strip():
        raise Refused(invalid("The body is empty; a JSON object is expected."))
    _bound_values(body)
    try:
        values = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        # The parser says what and where; it repeats nothing of the body.
        raise Refused(invalid(f"The body is not valid JSON: {error}.")) from None
    if not isinstance(values, dict):
        raise Refused(invalid("The body must be a JSON object."))
    if len(values) > MAX_MEMBERS:
        raise Refused(invalid(f"The body must have at most {MAX_MEMBERS} members."))
    names = _count_names(values, max_depth)
    if names is None:
        raise Refused(invalid(f"The body is nested more than {max_depth} levels deep."))
    # Only a body with more that looks like a name than it has members is read a second time.
    ends = sum(map(len, _name_ends(body)))
    if ends > names and ends - len(_IN_TEXT.findall(body)) > names:
        _refuse_twins(body)
    try:
        members = _MEMBERS.decode(body)
    except msgspec.DecodeError:
        raise Refused(invalid("The body is not valid JSON.")) from None
    return values, {name: bytes(raw) for name, raw in members.items()}


def members_of(text: bytes) -> dict[str, bytes]:
    """The texts of an object's members, in order. ValueError if `text` is no JSON object."""
    try:
        return {name: bytes(raw) for name, raw in _MEMBERS.decode(text).items()}
    except (msgspec.DecodeError, RecursionError):
        pass
    # A worker may escape half a surrogate pair: JSON, but not for the strict parser. Its members are cut out of the text.
    try:
        is_object = isinstance(json_members.parse(text), dict)
    except json_members.NotJson:
        is_object = False
    if not is_object:
        raise ValueError("not a JSON object")
    return {span.name: text[span.value : span.end] for span in json_members.spans(text)}


def join(members: Mapping[str, bytes]) -> bytes:
    """The object that has these members."""
    return b"{" + b",".join(json.dumps(name).encode() + b":" + text for name, text in members.items()) + b"}"


def _bound_values(body: bytes) -> None:
    """400 for a body of too many values, before any of them is made."""
    # Most bodies with so many brackets, commas and colons have them in texts.
    if len(body) <= MAX_CONTAINERS or not _Tally().add(body):
        return
    tally = _Tally()
    for piece in _without_texts(body):
        if tally.add(piece):
            limits = f"{MAX_CONTAINERS} lists and objects, {MAX_NAMES} members and {MAX_VALUES} values"
            raise Refused(invalid(f"The body has too many values; it may have at most {limits}."))


class _Tally:
    """Counts what only structure has; `add` says whether it is too much."""

    def __init__(self) -> None:
        self._containers = self._names = self._values = 0

    def add(self, text: bytes) -> bool:
        self._containers += text.count(b"[") + text.count(b"{")
        self._names += text.count(b":")
        self._values += text.count(b",")
        return self._containers > MAX_CONTAINERS or self._names > MAX_NAMES or self._values > MAX_VALUES


def _without_texts(body: bytes) -> Iterator[bytes]:
    """What stands between the texts, in pieces of so many texts that no other thread waits long."""
    start = 0
    while start < len(body):
        found = _SOME_TEXTS.match(body, start)
        # The rest has no whole text any more.
        end = found.end() if found is not None and found.end() > start else len(body)
        yield _TEXTS.sub(b"", body[start:end])
        start = end


def _count_names(values: dict[str, Any], max_depth: int) -> int | None:
    """How many members all the objects have together; None if the value is nested deeper than `max_depth`."""
    names = 0
    level: list[dict[str, Any] | list[Any]] = [values]
    for _ in range(max_depth):
        below: list[dict[str, Any] | list[Any]] = []
        for item in level:
            children: Iterable[Any] = item
            if type(item) is dict:
                names += len(item)
                children = item.values()
            # The parser makes plain ones only; this test is the dearest of the walk.
            below += [child for child in children if type(child) is dict or type(child) is list]
        if not below:
            return names
        level = below
    return None


def _name_ends(body: bytes) -> Iterator[list[bytes]]:
    start = 0
    while start < len(body):
        # A match begins at a quote and holds no other, so that a cut before a quote divides none.
        end = body.find(b'"', start + _STRIDE_BYTES) if len(body) - start > _STRIDE_BYTES else -1
        end = len(body) if end < 0 else end
        yield _NAME_END.findall(body, start, end)
        start = end


def _refuse_twins(body: bytes) -> None:
    """400 for a name that stands twice in one object."""
    # Numbers stay text: of those alone this parser would refuse some.
    json.loads(body.decode(), object_pairs_hook=_distinct, parse_int=_as_text, parse_float=_as_text)


def _as_text(number: str) -> str:
    return number


def _distinct(pairs: list[tuple[str, Any]]) -> bool:
    seen = set()
    for name, _ in pairs:
        if name in seen:
            shown = name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}..."
            raise Refused(invalid(f"{shown!r} stands more than once in one object; each name may stand once.", shown))
        seen.add(name)
    return True
