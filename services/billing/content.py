"""The content of an item, kept to compare a repeated one with. Pure; anything in billing may import it.

Content is the message without its id and without what belongs to one sending (deadline, trace).
"""

from functools import cache
from typing import Any, TypeVar

from google.protobuf.message import Message

_NOT_CONTENT = ("context", "operation_id", "reservation_id")
M = TypeVar("M", bound=Message)


def storable(text: str) -> str:
    """A free text as every store keeps it and gives it back: not all can keep U+0000. What is chained is what is read later."""
    return text.replace("\0", "\ufffd")


def canonical(item: Message) -> bytes:
    """The content's bytes: equal content, equal bytes."""
    return _content(item).SerializeToString(deterministic=True)


def first_difference(stored: bytes, item: Message) -> str:
    """The name of the first field, by number, that differs from what is stored; empty where none does."""
    if canonical(item) == stored:
        return ""
    kept, new = type(item)(), _content(item)
    kept.ParseFromString(stored)
    return _differs(kept, new)


def _content(item: M) -> M:
    content = type(item)()
    content.CopyFrom(item)
    kind: Any = type(item)
    for name in _not_content(kind):
        content.ClearField(name)
    return content


@cache
def _not_content(kind: Any) -> tuple[str, ...]:
    """Which of them such a message has."""
    return tuple(name for name in _NOT_CONTENT if name in kind.DESCRIPTOR.fields_by_name)


def _differs(kept: Any, new: Any) -> str:
    """Where a part is a message on both sides, the difference inside it is named (`prompt.text_bytes`)."""
    for field in sorted(new.DESCRIPTOR.fields, key=_number):
        if field.has_presence and kept.HasField(field.name) != new.HasField(field.name):
            return str(field.name)
        mine, theirs = getattr(kept, field.name), getattr(new, field.name)
        if mine == theirs:
            continue
        if isinstance(mine, Message):
            return f"{field.name}.{_differs(mine, theirs)}".rstrip(".")
        return str(field.name)
    return ""


def _number(field: Any) -> int:
    return int(field.number)
