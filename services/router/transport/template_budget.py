"""How much one rendering of a chat template may do. Pure; imported by `template_sandbox.py` and `template.py`.

Jinja's sandbox keeps a template from what it must not touch, but not from taking all the time and memory there is; and what
a client sends (thousands of messages, a number in `chat_template_kwargs`) can make a harmless template do so. Steps and
characters are counted instead of seconds, so that a request is refused on every machine or on none. Each thread that renders
has its own budget; without one (Jinja folds constants when it compiles) nothing is allowed, and the folding is left out.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2.exceptions import TemplateError

# Reads, calls, pieces and turns of loops. A message takes some fifteen, so that a chat may have tens of thousands.
MAX_STEPS = 500_000
# Characters and elements that operations make: a loop that appends to one text makes it anew each time.
MAX_MADE = 256 * 1024 * 1024
# As deep as anybody's tool arguments are, and no deeper than JSON can be written without recursion's end.
MAX_DEPTH = 128
# Repeats, widths and powers: Jinja's own bound of `range`.
MAX_COUNT = 100_000
MAX_BITS = 4096


class Excess(TemplateError):
    """The rendering would do more than it may; the text is ours and meant for the caller."""

    def __init__(self, message: str = "the conversation is too long for the model's chat template") -> None:
        super().__init__(message)


class Budget:
    """What is left to one rendering."""

    __slots__ = ("made", "steps")

    def __init__(self) -> None:
        self.steps = MAX_STEPS
        self.made = MAX_MADE


_current: ContextVar[Budget] = ContextVar("template_budget")


@contextmanager
def budget() -> Iterator[Budget]:
    """The budget of everything that is rendered inside."""
    token = _current.set(found := Budget())
    try:
        yield found
    finally:
        _current.reset(token)


def step(count: int = 1) -> None:
    """Something small was done, `count` times."""
    left = _current.get()
    left.steps -= count
    if left.steps < 0:
        raise Excess


def made(value: Any) -> Any:
    """The value, its characters or elements taken off the budget."""
    if isinstance(value, str | list | tuple | dict):
        room(len(value))
    return value


def room(size: int) -> None:
    """So many characters or elements are made, or about to be."""
    left = _current.get()
    left.made -= size
    if left.made < 0:
        raise Excess


def count(number: Any) -> None:
    """A repeat, width or power is bounded; anything but an integer is no such thing."""
    if isinstance(number, int) and abs(number) > MAX_COUNT:
        raise Excess("a number is too large for the model's chat template")


def measured(value: Any, indent: int = 0) -> Any:
    """The value, if what is inside it can be written at all: lists may hold one another many times over.

    `indent`: characters that each level adds to a line. Python then writes a member through all the levels above it.
    """
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise Excess("a value is nested too deeply for the model's chat template")
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list | tuple):
                below.extend(item)
            elif isinstance(item, str):
                room(len(item))
        step(len(below) * (depth if indent else 1))
        room(len(below) * depth * indent)
        level = below
    return value
