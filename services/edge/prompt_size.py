"""The size of a prompt, from which billing makes the bound on its tokens. Pure; request modules import it.

The bound is the contract's (section 6): UTF-8 bytes of every string, the larger of raw and NFKC form, because a tokenizer
may normalise before it splits and a byte gives at most `tokens_per_byte` tokens; tools, schemas and documents as JSON at
indent 4, which is the widest that templates print them. Names of members count too, since templates print whole objects.

Nothing is printed to be measured, and every step is linear in the body: some values are a hundred times as large as text.
"""

import json
from dataclasses import dataclass
from typing import Any

from services.edge.normal_form import string_bytes

# Never part of what a model reads.
_UNREAD = frozenset(
    {
        "model",
        "user",
        "metadata",
        "stop",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "encoding_format",
        "logit_bias",
    }
)
_INDENT = 4
_PAST_INTEGERS = 2.0**63
_WORDS = {True: 4, False: 5}


@dataclass(frozen=True, slots=True)
class PromptSize:
    """What was measured; the wire form is `PromptSize` of the reservation service."""

    text_bytes: int = 0
    messages: int = 0
    has_tools: bool = False
    images: int = 0
    inputs: int = 0
    token_ids: int = 0


def value_bytes(value: Any) -> int:
    """The sum over every string in a JSON value, names of members included; image data does not count as text."""
    total = 0
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            total += string_bytes(item)
        elif isinstance(item, list):
            stack += item
        elif isinstance(item, dict):
            for name, child in item.items():
                total += string_bytes(name)
                stack.append(child)
    return total


def printed_bytes(value: Any) -> int:
    """A JSON value as text at indent 4: each item on a line of its own, indented, with its comma."""
    total = 0
    stack: list[tuple[Any, int]] = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        if not isinstance(item, dict | list):
            total += _printed_scalar(item)
            continue
        total += 2
        if not item:
            continue
        # Before each item a line break and its indent, after each but the last a comma; a line for the closing bracket.
        total += len(item) * (1 + _INDENT * (depth + 1)) + len(item) - 1 + 1 + _INDENT * depth
        if isinstance(item, dict):
            for name, child in item.items():
                total += _printed_text(name) + 2
                stack.append((child, depth + 1))
        else:
            stack += [(child, depth + 1) for child in item]
    return total


def _printed_scalar(value: Any) -> int:
    if isinstance(value, str):
        return _printed_text(value)
    if value is None:
        return 4
    if isinstance(value, float) and abs(value) >= _PAST_INTEGERS:
        # Our parser keeps no integer as large; a worker's does, and prints every digit.
        return len(str(int(value)))
    return _WORDS[value] if isinstance(value, bool) else len(repr(value))


def _printed_text(text: str) -> int:
    return string_bytes(json.dumps(text, ensure_ascii=False))


def body_bytes(body: dict[str, Any], measured: frozenset[str]) -> int:
    """Everything in a body that a model may read, except the members in `measured`, which the caller has counted."""
    total = 0
    for name, value in body.items():
        if value is None or name in measured or name in _UNREAD:
            continue
        # Templates print tools, schemas, documents and whatever else has structure as JSON.
        total += printed_bytes(value) if isinstance(value, dict | list) else value_bytes(value)
    return total
