"""The vectors of a worker's answer to a request for embeddings: whether they can be what was asked for. Pure;
`openai_frames.py` imports it.

A vector is a text (base64) or a list of numbers; servers that do not pool answer a list of such lists. None is empty.
"""

from typing import Any

_NUMBERS = frozenset({int, float})


def problem(data: list[Any], inputs: int) -> str:
    """What is wrong with the answer's `data`, or an empty text."""
    if not all(isinstance(each, dict) and _is_vector(each.get("embedding")) for each in data):
        return "an embedding without its vector"
    if len(data) != inputs:
        return "not one embedding for each input"
    # Some leave the index out: then the place is the input's.
    places = [place if each.get("index") is None else each["index"] for place, each in enumerate(data)]
    if any(type(place) is not int for place in places) or set(places) != set(range(inputs)):
        return "embeddings of other inputs"
    return ""


def _is_vector(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value)
    if not isinstance(value, list) or not value:
        return False
    if isinstance(value[0], list):
        return all(isinstance(row, list) and row and _are_numbers(row) for row in value)
    return _are_numbers(value)


def _are_numbers(values: list[Any]) -> bool:
    # In the interpreter's own loops: an answer may hold millions.
    return _NUMBERS.issuperset(map(type, values))
