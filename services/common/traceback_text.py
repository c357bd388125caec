"""A traceback without the texts of its exceptions: where it came from, and of what types. `log.py` imports it.

An exception's own text may repeat what was being worked on, and that may be a prompt or a key: `ValueError`s of JSON and
numbers, `KeyError`s, Pydantic's errors and protobuf's all do so. Places and types are what a bug is found by.
"""

import logging
import sys
import traceback
from typing import Any

# The innermost of each exception; a recursion without end has a thousand.
MAX_FRAMES = 50
MAX_CAUSES = 8
MAX_MEMBERS = 8


def chain(error: BaseException) -> list[dict[str, Any]]:
    """For a log line in JSON: the exception and its causes, newest first, each with its frames, innermost last."""
    return [
        {
            "exc_type": type(each).__qualname__,
            "frames": [
                {"filename": frame.filename, "lineno": frame.lineno, "name": frame.name}
                for frame in traceback.extract_tb(each.__traceback__, limit=-MAX_FRAMES)
            ],
            **_members(each),
        }
        for each in _with_causes(error)
    ]


def text(error: BaseException) -> str:
    """For people: the same in Python's own form."""
    return "\nraised by or after\n".join(
        "".join([*traceback.format_tb(each.__traceback__, limit=-MAX_FRAMES), type(each).__qualname__])
        for each in _with_causes(error)
    )


def render(_logger: object, _method: str, event: Any) -> Any:
    """A structlog processor: `exc_info` becomes `exception`."""
    raised = event.pop("exc_info", None)
    if raised is True:
        # Only while it is handled; `exception()` of a logger is called in no other place.
        raised = sys.exc_info()[1]
    if isinstance(raised, tuple):
        raised = raised[1]
    if isinstance(raised, BaseException):
        event["exception"] = chain(raised)
    return event


class Formatter(logging.Formatter):
    """For libraries' lines, whose exceptions are logged by them."""

    def formatException(self, ei: Any) -> str:
        return text(ei[1]) if ei[1] is not None else ""


def _members(error: BaseException) -> dict[str, Any]:
    if not isinstance(error, BaseExceptionGroup):
        return {}
    return {"exceptions": [chain(each) for each in error.exceptions[:MAX_MEMBERS]]}


def _with_causes(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in found and len(found) < MAX_CAUSES:
        found.append(each)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return found
