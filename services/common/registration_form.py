"""A registration's JSON form as a message. The command and the edge's operators' listener import it.

Only what a message cannot carry is judged here: the shape of its own members. What stands in them is the router's to judge, in
the same words (`services/router/registration.py`). A value is never repeated, since some are secret. Pure.
"""

from collections.abc import Iterator
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from speedinfer.router.v1 import registry_pb2

REQUIRED = frozenset({"worker_id", "runtime", "runtime_endpoint", "supported_models", "runtime_config"})
_FIELDS = registry_pb2.RegisterWorkerRequest.DESCRIPTOR.fields
_NAMES = frozenset(field.name for field in _FIELDS)
_MAX_SHOWN = 64


class WrongForm(ValueError):
    """What is wrong with a registration's shape; `field` is the first member that is."""

    def __init__(self, field: str, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.field = field
        self.problems = problems


def read(value: Any) -> registry_pb2.RegisterWorkerRequest:
    """The message that a registration makes. WrongForm names every member that is wrong."""
    if not isinstance(value, dict):
        raise WrongForm("", ["a registration is a JSON object"])
    if wrong := [*_unknown(value), *_misshapen(value)]:
        raise WrongForm(wrong[0][0], [f"{name}{problem}" for name, problem in wrong])
    request = registry_pb2.RegisterWorkerRequest()
    try:
        json_format.ParseDict(value, request)
    except (json_format.ParseError, UnicodeError, OverflowError):
        # Shapes have been looked at; what is left is half of a surrogate pair, or nesting that no message has.
        raise WrongForm("", ["a text in it is not valid Unicode, or it is nested too deeply"]) from None
    return request


def _unknown(value: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name in sorted(set(value) - _NAMES):
        shown = name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}..."
        yield shown, f" is not known; known are {', '.join(sorted(_NAMES))}"


def _misshapen(value: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What is absent or of another kind, in the order in which a registration is written."""
    for field in _FIELDS:
        found = value.get(field.name)
        if found is None:
            if field.name in REQUIRED:
                yield field.name, " is missing"
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            if not isinstance(found, dict):
                yield field.name, ": it must be an object"
        elif field.is_repeated:
            if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
                yield field.name, ": it must be a list of strings"
        elif not isinstance(found, str):
            yield field.name, ": it must be a string"
