"""JSON as its standard has it: no NaN, no key twice, no number that cannot be kept.

Python's reader takes all three, and what it makes of them would be refused later, or changed, by words that nobody can
connect with the file. Pure; imported by the command's modules only.
"""

import json
import math
from collections import Counter
from typing import Any


def read(text: str) -> Any:
    """The value of a JSON text. ValueError says what is wrong with it."""
    try:
        return json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_read_float,
            parse_int=_read_int,
            object_pairs_hook=_object,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _read_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{_short(text)} is too large a number")
    return value


def _read_int(text: str) -> int:
    # On the wire all numbers are doubles.
    _read_float(text)
    return int(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {_short(repr(name))} stands more than once in one object")
    return made


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."
