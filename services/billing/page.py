"""Pages of lists: size and place. Pure; servicers use it."""

from collections.abc import Sequence
from typing import TypeVar

from services.common.errors import InvalidArgument

T = TypeVar("T")
DEFAULT_SIZE = 100
MAX_SIZE = 1_000
_MAX_PLACE = 2**63 - 1


def size(asked: int) -> int:
    """How many a page holds."""
    return min(asked or DEFAULT_SIZE, MAX_SIZE)


def place(token: str) -> int:
    """Where to go on, of lists whose places are numbers. InvalidArgument if the token is none of ours."""
    if not token:
        return 0
    if not (token.isascii() and token.isdigit() and len(token) < 20 and int(token) <= _MAX_PLACE):
        raise InvalidArgument("the page token is not one that was answered", field="page_token")
    return int(token)


def cut(found: Sequence[T], asked: int) -> tuple[Sequence[T], T | None]:
    """The page of what was found (one more than its size was looked for), and its last item if there is more."""
    items = found[: size(asked)]
    return items, items[-1] if len(found) > len(items) else None
