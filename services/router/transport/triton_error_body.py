"""The words in the body of a refusal over HTTP. Pure; imported by the Triton transport.

Triton puts a model's error into `{"error":"..."}`, however long it is, and as it is: the bytes need be no UTF-8. Only so much
of a body is read, so what came may be the beginning.
"""

import json
import re

import orjson

_OPENING = re.compile(rb'\s*\{\s*"error"\s*:\s*"')
_INSIDE = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
# The part of a word that was cut off is not known for what it is, an address say. A longer one than this is none.
_MAX_LAST_WORD = 1024


def error_text(content: bytes) -> str:
    """What the body says: JSON, or one event of a stream whose first response was an error. Of a text that does not end, all
    but the last word; empty if there is none."""
    content = content.strip().removeprefix(b"data:")
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        return _beginning(content)
    return str(value.get("error", "")) if isinstance(value, dict) else ""


def _beginning(content: bytes) -> str:
    opening = _OPENING.match(content)
    if opening is None:
        return ""
    rest = content[opening.end() :].decode("utf-8", "replace")
    inside = _INSIDE.match(rest)
    assert inside is not None, "it matches nothing, too"
    # Not strict: a control character that was left as it is does no harm here. Halves of surrogate pairs would later.
    text: str = json.loads(f'"{inside[0]}"', strict=False).encode("utf-8", "replace").decode()
    if rest[inside.end() : inside.end() + 1] == '"':
        return text
    last = text.rfind(" ", max(len(text) - _MAX_LAST_WORD, 0))
    return text if last < 0 else text[:last]
