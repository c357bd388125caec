"""The Jinja environment in which Hugging Face renders chat templates, rebuilt from its documented rules.

Immutable sandbox; `trim_blocks`, `lstrip_blocks`; `break` and `continue`; the `generation` block, which marks tokens for
training and means nothing here; `tojson` without HTML escapes; `raise_exception`; `strftime_now`. Pure: the time is an
argument. Imported by `template.py` only.
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


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


def environment() -> ImmutableSandboxedEnvironment:
    """A fresh environment; one serves any number of templates."""
    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        # What is rendered is a prompt, not HTML.
        autoescape=False,
        extensions=[GenerationBlock, "jinja2.ext.loopcontrols"],
    )
    sandbox.filters["tojson"] = to_json
    sandbox.globals["raise_exception"] = raise_exception
    return sandbox


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as Python writes it: Jinja's own filter would escape `<`, `>`, `&` and `'`, and sort the keys."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message: object) -> NoReturn:
    """What templates call to refuse a conversation, such as one whose roles do not alternate."""
    raise Refusal(str(message))


def strftime_now(now: datetime) -> Callable[[str], str]:
    """The function by which templates write the date."""
    return lambda pattern: now.strftime(pattern)
