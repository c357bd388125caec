"""Identifiers. Anybody may import it.

Request, reservation and operation ids are UUIDv7 (RFC 9562): their first 48 bits are milliseconds since the epoch, so they
sort by age, keep database inserts local, and tell when they were made without a look-up.
"""

import os
import re
import time

# Version 7, variant 0b10.
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.ASCII)
# What operators may name a worker.
WORKER_ID = r"^[A-Za-z0-9._:-]{1,128}$"
_WORKER_ID = re.compile(WORKER_ID)


def uuid7(now_ms: int | None = None, randomness: bytes | None = None) -> str:
    """A new UUIDv7 in text form. `randomness` is 10 bytes; both arguments are for tests and simulations."""
    milliseconds = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    tail = int.from_bytes(os.urandom(10) if randomness is None else randomness, "big")
    value = (milliseconds & (1 << 48) - 1) << 80 | tail
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_uuid7(text: str) -> bool:
    """Whether `text` is a UUIDv7 in its canonical lower-case form."""
    return _UUID7.fullmatch(text) is not None


def is_worker_id(text: str) -> bool:
    """Whether a worker can have the id `text`."""
    return _WORKER_ID.fullmatch(text) is not None


def uuid7_ms(text: str) -> int:
    """When a UUIDv7 was made, in milliseconds since the epoch. ValueError if it is none."""
    if _UUID7.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a UUIDv7")
    return int(text[:8] + text[9:13], 16)
