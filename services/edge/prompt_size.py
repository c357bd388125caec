"""The size of a prompt, from which billing makes the bound on its tokens. Pure; request modules import it.

The bound is the contract's (section 6): UTF-8 bytes of every string, the larger of raw and NFKC form, because a tokenizer
may normalise before it splits and a byte gives at most `tokens_per_byte` tokens; tools, schemas and documents as JSON at
indent 4, which is the widest that templates print them. Names of members count too, since templates print whole objects.
"""

import json
import unicodedata
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, slots=True)
class PromptSize:
    """What was measured; the wire form is `PromptSize` of the reservation service."""

    text_bytes: int = 0
    messages: int = 0
    has_tools: bool = False
    images: int = 0
    inputs: int = 0
    token_ids: int = 0


def string_bytes(text: str) -> int:
    """UTF-8 bytes of a string, the larger of raw and NFKC form."""
    if text.isascii():
        return len(text)
    return max(len(text.encode()), len(unicodedata.normalize("NFKC", text).encode()))


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
    """A JSON value as text at indent 4."""
    return string_bytes(json.dumps(value, indent=4, ensure_ascii=False))


def body_bytes(body: dict[str, Any], measured: frozenset[str]) -> int:
    """Everything in a body that a model may read, except the members in `measured`, which the caller has counted."""
    total = 0
    for name, value in body.items():
        if value is None or name in measured or name in _UNREAD:
            continue
        # Templates print tools, schemas, documents and whatever else has structure as JSON.
        total += printed_bytes(value) if isinstance(value, dict | list) else value_bytes(value)
    return total
