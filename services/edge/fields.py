"""Checks on the members of a request's body. Pure; request modules import it.

Each check answers the value, or None where the member is absent or null (the two mean the same), or raises Refused with the
member's name in `param`. Booleans are no numbers, and 12.0 is no integer.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

from services.edge.openai_errors import Refused, invalid

MAX_COUNT = 2**31 - 1
# JSON's whole numbers of more than 64 bits are read as floats; no number in between is one.
_WHOLE_FROM = 2**63


def refuse(param: str, message: str) -> NoReturn:
    """End the request with 400, naming the member."""
    raise Refused(invalid(message, param))


def boolean(body: Mapping[str, Any], name: str) -> bool | None:
    """A member that is true or false."""
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        refuse(name, f"{name!r} must be true or false.")
    return value


def integer(body: Mapping[str, Any], name: str, low: int, high: int = MAX_COUNT) -> int | None:
    """A member that is a whole number from `low` to `high`."""
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not int and not (type(value) is float and abs(value) >= _WHOLE_FROM):
        refuse(name, f"{name!r} must be an integer.")
    if not low <= value <= high or type(value) is not int:
        refuse(name, f"{name!r} must be from {low} to {high}.")
    return value


def number(body: Mapping[str, Any], name: str, low: float, high: float) -> None:
    """A member that is a number from `low` to `high`."""
    value = body.get(name)
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse(name, f"{name!r} must be a number.")
    if not low <= value <= high:
        refuse(name, f"{name!r} must be from {low:g} to {high:g}.")


def text(body: Mapping[str, Any], name: str, *, required: bool = False, max_length: int | None = None) -> str | None:
    """A member that is a string; not empty where it is required."""
    value = body.get(name)
    if value is None and not required:
        return None
    if value is None:
        refuse(name, f"{name!r} is required.")
    if not isinstance(value, str):
        refuse(name, f"{name!r} must be a string.")
    if required and not value:
        refuse(name, f"{name!r} must not be empty.")
    if max_length is not None and len(value) > max_length:
        refuse(name, f"{name!r} must have at most {max_length} characters.")
    return str(value)


def mapping(body: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """A member that is an object."""
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        refuse(name, f"{name!r} must be an object.")
    return value


def objects(body: Mapping[str, Any], name: str) -> list[dict[str, Any]] | None:
    """A member that is a list of objects."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, list):
        refuse(name, f"{name!r} must be a list.")
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            refuse(f"{name}[{index}]", f"'{name}[{index}]' must be an object.")
    return value


def texts(body: Mapping[str, Any], name: str, most: int) -> None:
    """A member that is a string or a list of strings, none of them empty and at most `most`."""
    value = body.get(name)
    if value is None:
        return
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        refuse(name, f"{name!r} must be a string or a list of strings.")
    if not all(listed):
        refuse(name, f"{name!r} must hold no empty string.")
    if len(listed) > most:
        refuse(name, f"{name!r} must have at most {most} items.")


def token_ids(value: Any, name: str) -> int:
    """How many token ids a list holds; each must be one."""
    for item in value:
        if type(item) is not int or not 0 <= item <= MAX_COUNT:
            refuse(name, f"{name!r} must hold whole numbers that are token ids.")
    return len(value)
