"""API keys: `sk-si-` + public id (12) + secret (32) + checksum (6), base 62. Anybody may import it.

The secret has 190 bits, so a plain SHA-256 protects it at rest. The checksum lets a mistyped key and a scanner's false
find be told without a look-up; it protects nothing.
"""

import hashlib
import re
import secrets
import zlib
from dataclasses import dataclass

PREFIX = "sk-si-"
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID, _SECRET, _CHECK = 12, 32, 6
_SHAPE = re.compile(rf"{PREFIX}([0-9A-Za-z]{{{_ID}}})([0-9A-Za-z]{{{_SECRET}}})([0-9A-Za-z]{{{_CHECK}}})")


@dataclass(frozen=True, slots=True)
class PresentedKey:
    """What the edge keeps of a key: never the secret."""

    key_id: str
    sha256: bytes


def make_key() -> tuple[str, PresentedKey]:
    """A new key's text, to be shown once, and what is stored of it."""
    body = "".join(secrets.choice(_ALPHABET) for _ in range(_ID + _SECRET))
    text = PREFIX + body + _checksum(body)
    return text, PresentedKey(_key_id(body[:_ID]), _sha256(text))


def parse_key(text: str) -> PresentedKey | None:
    """What a client presented, or None if it cannot be a key of ours."""
    match = _SHAPE.fullmatch(text)
    if match is None or _checksum(match[1] + match[2]) != match[3]:
        return None
    return PresentedKey(_key_id(match[1]), _sha256(text))


def _key_id(public: str) -> str:
    return f"key_{public}"


def _sha256(text: str) -> bytes:
    return hashlib.sha256(text.encode("ascii")).digest()


def _checksum(body: str) -> str:
    value, digits = zlib.crc32(body.encode("ascii")), []
    for _ in range(_CHECK):
        value, digit = divmod(value, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
