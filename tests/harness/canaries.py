"""What must never be found where the product writes, and a search for it in bytes. Pure but for the one set of a run.

Whoever makes a secret in a test (`Product.key`, `Product.register`) enters it here; words of prompts and answers are in from
the start. A finding tells the kind and the place, never the secret.
"""

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass

from services.common.apikey import parse_key
from tests.fakes.canary_words import ANSWER, PROMPT

KEY, ADMIN_TOKEN, CREDENTIAL, IDEMPOTENCY_KEY = (
    "an API key",
    "the admin token",
    "a worker's credential",
    "an idempotency key",
)
A_PROMPT, AN_ANSWER = "a prompt", "an answer"
# Shorter values, such as a header's `blue`, are words like any others.
MIN_CHARACTERS = 8
# A key that is cut short is found by any piece of its secret of this length.
PIECE = 16
_PUBLIC = len("sk-si-") + 12
_RUN = re.compile(rb"[0-9A-Za-z]{%d,}" % PIECE)
_KEY_SHAPE = re.compile(rb"sk-si-[0-9A-Za-z]{50}")


@dataclass(frozen=True, order=True)
class Hit:
    """A canary in some bytes."""

    kind: str
    offset: int


class Canaries:
    """Secrets of several kinds."""

    def __init__(self) -> None:
        self._needles: dict[bytes, str] = {}
        self._pieces: set[bytes] = set()
        self.add(A_PROMPT, PROMPT)
        # What many tests ask, besides.
        self.add(A_PROMPT, "Say hello.")
        self.add(AN_ANSWER, ANSWER)

    def add(self, kind: str, text: str) -> None:
        """Enter a text, as it is and as a part of what is in base 64; one that is too short to tell anything is left out."""
        if len(text) < MIN_CHARACTERS:
            return
        self._needles[text.encode()] = kind
        if len(text) >= PIECE:
            for shift in range(3):
                # The first and last characters depend on the neighbours.
                coded = base64.b64encode(b"\0" * shift + text.encode()).rstrip(b"=")
                self._needles[coded[4 if shift else 0 : -2]] = kind

    def add_key(self, key: str) -> None:
        """Enter an API key: any part of its secret is one."""
        secret = key[_PUBLIC:].encode()
        self._pieces.update(secret[at : at + PIECE] for at in range(len(secret) - PIECE + 1))

    def find(self, data: bytes) -> Iterator[Hit]:
        """The first place of each canary. An API key that was never entered is known by its checksum."""
        for needle, kind in self._needles.items():
            if (offset := data.find(needle)) >= 0:
                yield Hit(kind, offset)
        for match in _KEY_SHAPE.finditer(data):
            if parse_key(match[0].decode()) is not None:
                yield Hit(KEY, match.start())
                return
        if (at := self._piece(data)) is not None:
            yield Hit(KEY, at)

    def _piece(self, data: bytes) -> int | None:
        if self._pieces:
            for match in _RUN.finditer(data):
                run = match[0]
                for at in range(len(run) - PIECE + 1):
                    if run[at : at + PIECE] in self._pieces:
                        return match.start() + at
        return None


# Everything of this run.
KNOWN = Canaries()
