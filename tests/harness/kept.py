"""Who in this process still keeps a text: for tests of what an open stream may hold on to."""

import gc
from typing import Any

from speedinfer.router.v1.inference_pb2 import GenerateItem

# Shorter ones are the marker itself, and what a test says of it.
MIN_LENGTH = 10_000


def keepers(marker: str) -> list[str]:
    """The types of the objects that hold a long text or message with the marker in it, by name and in order."""
    found = []
    for each in gc.get_objects():
        if isinstance(each, GenerateItem):
            held = any(_has(member.json, marker) for member in each.members)
        else:
            held = any(_has(one, marker) for one in _referents(each))
        if held:
            found.append(type(each).__name__)
    return sorted(found)


def instances(kind: type) -> int:
    """How many objects of a type there are."""
    return sum(isinstance(each, kind) for each in gc.get_objects())


def _referents(each: Any) -> list[Any]:
    """What an object refers to, and what is in those of its tuples and dicts that the collector does not list by themselves."""
    found = gc.get_referents(each)
    for one in list(found):
        if type(one) in (tuple, dict) and not gc.is_tracked(one):
            found += gc.get_referents(one)
    return found


def _has(value: Any, marker: str) -> bool:
    if type(value) in (bytes, bytearray):
        return len(value) > MIN_LENGTH and marker.encode() in value
    return type(value) is str and len(value) > MIN_LENGTH and marker in value
