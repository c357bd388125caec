"""A client's JSON object, checked strictly and split into its top-level members. Pure; request modules import it.

Two parsers read each body: one that is strict about everything (UTF-8, surrogates, NaN, depth) and gives values to check, and
one that leaves the members' text as the client wrote it, to be passed on. Both take the last of two members of one name.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from services.edge.openai_errors import Refused, invalid

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def parse(body: bytes, max_depth: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The values and the texts of an object's members. Refused (400) for anything that is no JSON object."""
    if not body.strip():
        raise Refused(invalid("The body is empty; a JSON object is expected."))
    try:
        values = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        # The parser says what and where; it repeats nothing of the body.
        raise Refused(invalid(f"The body is not valid JSON: {error}.")) from None
    if not isinstance(values, dict):
        raise Refused(invalid("The body must be a JSON object."))
    # No value can be deeper than it has brackets: only suspicious bodies are walked.
    if body.count(b"[") + body.count(b"{") > max_depth and _is_deeper(values, max_depth):
        raise Refused(invalid(f"The body is nested more than {max_depth} levels deep."))
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
    # A worker may escape half a surrogate pair: JSON, but not for the strict parser. Written anew, the escape stays.
    try:
        values = json.loads(text.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise ValueError("not a JSON object") from None
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    return {name: json.dumps(value, separators=(",", ":")).encode() for name, value in values.items()}


def join(members: Mapping[str, bytes]) -> bytes:
    """The object that has these members."""
    return b"{" + b",".join(json.dumps(name).encode() + b":" + text for name, text in members.items()) + b"}"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _is_deeper(value: Any, max_depth: int) -> bool:
    level = [value]
    for _ in range(max_depth):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += [child for child in item.values() if isinstance(child, dict | list)]
            elif isinstance(item, list):
                below += [child for child in item if isinstance(child, dict | list)]
        if not below:
            return False
        level = below
    return True
