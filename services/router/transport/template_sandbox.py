"""The Jinja environment in which Hugging Face renders chat templates, rebuilt from its documented rules, and bounded.

Immutable sandbox; `trim_blocks`, `lstrip_blocks`; `break` and `continue`; the `generation` block, which marks tokens for
training and means nothing here; `tojson` without HTML escapes; `raise_exception`; `strftime_now`; `dict` and `namespace`
without a way to what Python keeps under underscores. What a template does is counted (`template_budget.py`). Pure: the time is
an argument. Imported by `template.py` only.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from services.router.transport.template_budget import MAX_BITS, MAX_COUNT, Excess, count, made, measured, room, step

# Filters and methods that make as much as a number among their arguments says.
_WIDE = frozenset({
    "batch", "center", "expandtabs", "indent", "ljust", "rjust", "slice", "tojson", "wordwrap", "zfill",
})  # fmt: skip
# Widths in formats: long ones, and those that stand elsewhere.
_PERCENT_WIDTH = re.compile(r"%[^%a-zA-Z]*(?:\d{6}|\*)")
_BRACES_WIDTH = re.compile(r":[^{}:]*(?:\d{6}|\{)")
# Names of what loops and `~` are rewritten to; no template can write them.
_TURNS, _JOINED = "turns of a loop", "parts of a text"


class Refusal(TemplateError):
    """The template itself refuses the conversation; the text is its author's, meant for the caller."""


class GenerationBlock(Extension):
    """`{% generation %}...{% endgeneration %}` renders what is in it."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own way to declare them

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """The block's body, in a scope of its own as in the original."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, with every read, call, loop and operation on the budget."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, _TURNS, [], [], None, None).set_lineno(loop.lineno)
        return _joins_rewritten(tree)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """See Jinja."""
        step()
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """See Jinja. A slice is made anew."""
        step()
        value = super().getitem(obj, argument)
        return made(value) if isinstance(argument, slice) else value

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """See Jinja."""
        step()
        # The sandbox wraps `format`.
        method = getattr(__obj, "__wrapped__", __obj)
        _asked(getattr(method, "__name__", ""), (getattr(method, "__self__", None), *args), kwargs)
        return made(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """See Jinja. What would be too large is not even made."""
        step()
        if operator == "%" and isinstance(left, str):
            _width(_PERCENT_WIDTH, left)
        elif operator == "*" and isinstance(left, int) and isinstance(right, int):
            _bits(left.bit_length() + right.bit_length())
        elif operator == "*":
            for text, times in ((left, right), (right, left)):
                if isinstance(text, str | list | tuple) and isinstance(times, int):
                    room(len(text) * max(0, times))
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            count(right)
            _bits(left.bit_length() * max(0, right))
        return made(super().call_binop(context, operator, left, right))


def environment() -> Sandbox:
    """A fresh environment; one serves any number of templates."""
    sandbox = Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        # What is rendered is a prompt, not HTML.
        autoescape=False,
        extensions=[GenerationBlock, "jinja2.ext.loopcontrols"],
        finalize=_written,
    )
    sandbox.filters["tojson"] = to_json
    sandbox.filters |= {name: _counted(name, function) for name, function in sandbox.filters.items()}
    sandbox.filters |= {_TURNS: _turns, _JOINED: _joined}
    sandbox.globals |= {
        "raise_exception": raise_exception,
        "range": _range,
        "dict": _Dictionaries(),
        "namespace": _PlainNamespace,
    }
    # Chance has no place in a prompt, and it is the only one of Jinja's functions that writes as much as it is told to.
    del sandbox.globals["lipsum"]
    return sandbox


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as Python writes it: Jinja's own filter would escape `<`, `>`, `&` and `'`, and sort the keys."""
    width = 0 if indent is None else max(1, _size(indent)) + sum(map(_size, separators or ()))
    return json.dumps(
        measured(value, width), ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def raise_exception(message: object) -> NoReturn:
    """What templates call to refuse a conversation, such as one whose roles do not alternate."""
    raise Refusal(str(message))


def strftime_now(now: datetime) -> Callable[[str], str]:
    """The function by which templates write the date: the machine's own time, which names no zone."""
    clock = now.replace(tzinfo=None)
    return lambda pattern: clock.strftime(pattern)


class _Dictionaries:
    """`dict` as templates use it, without the type's attributes."""

    def __call__(self, *pairs: Any, **members: Any) -> dict[Any, Any]:
        """A new one."""
        return dict(*pairs, **members)

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        """One value for all keys."""
        return dict.fromkeys(keys, value)


class _PlainNamespace(Namespace):
    """`namespace`, whose members may not look like Python's own."""

    def __init__(*arguments: Any, **members: Any) -> None:  # so that `namespace(self=...)` is a member, too
        found: Mapping[Any, Any] = dict(*arguments[1:], **members)
        for name in found:
            _plain_name(name)
        Namespace.__init__(arguments[0], found)

    def __setitem__(self, name: str, value: Any) -> None:
        _plain_name(name)
        super().__setitem__(name, value)


def _plain_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError("a namespace's members begin with no underscore")


def _joins_rewritten(tree: nodes.Template) -> nodes.Template:
    """`a ~ b` as a filter over its parts: Jinja joins them where the sandbox does not look."""
    for parent in (tree, *tree.find_all(nodes.Node)):
        for field, value in parent.iter_fields():
            if isinstance(value, nodes.Concat):
                setattr(parent, field, _join(value))
            elif isinstance(value, list):
                value[:] = [_join(item) if isinstance(item, nodes.Concat) else item for item in value]
    return tree


def _join(concat: nodes.Concat) -> nodes.Node:
    parts = nodes.List(concat.nodes).set_lineno(concat.lineno)
    return nodes.Filter(parts, _JOINED, [], [], None, None).set_lineno(concat.lineno)


def _joined(parts: list[Any]) -> str:
    return str(made(str_join(map(_written, parts))))


def _turns(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        step()
        yield value


def _range(*arguments: int) -> range:
    found = range(*arguments)
    if len(found) > MAX_COUNT:
        raise Excess("a range is too long for the model's chat template")
    return found


def _written(value: Any) -> Any:
    return measured(value) if isinstance(value, list | tuple | dict) else made(value)


def _counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    # Some are given Jinja's context first. They say so by an attribute, which comes along.
    given = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        step()
        _asked(name, args[given:], kwargs)
        return made(function(*args, **kwargs))

    return counted


def _asked(name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """What a filter or a method is about to make of its first argument is bounded before it is made."""
    text, others = (arguments[0], arguments[1:]) if arguments else (None, ())
    if name in _WIDE:
        for argument in (*others, *named.values()):
            count(argument)
            if isinstance(text, str) and (name != "wordwrap" or isinstance(argument, str)):
                lines = len(text) if name == "wordwrap" else text.count("\n") + text.count("\t") + 1
                room(lines * _size(argument))
    elif name in ("format", "format_map") and isinstance(text, str):
        _width(_PERCENT_WIDTH, text)
        _width(_BRACES_WIDTH, text)
    elif name == "replace" and isinstance(text, str) and len(others) > 1:
        old, new = str(others[0]), str(others[1])
        room(text.count(old) * max(0, len(new) - len(old)))
    elif name == "join":
        # `separator.join(list)`, and `list | join(separator)`.
        for one, other in ((text, others[:1]), *((value, (text,)) for value in (*others, *named.values()))):
            if isinstance(one, str) and other and isinstance(other[0], str | list | tuple):
                room(len(one) * len(other[0]))


def _size(argument: Any) -> int:
    """Characters that a width, or a text in its place, stands for."""
    if isinstance(argument, str):
        return len(argument)
    return max(0, argument) if isinstance(argument, int) else 0


def _width(pattern: re.Pattern[str], text: str) -> None:
    if pattern.search(text):
        raise Excess("a width is too large for the model's chat template")


def _bits(bits: int) -> None:
    if bits > MAX_BITS:
        raise Excess("a number is too large for the model's chat template")
