"""What goes to standard output and standard error. Imported by the command's modules only.

With `--json` exactly one JSON value is printed on standard output and nothing else; everything that is not a result goes to
standard error.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from services.common import visible_text


def print_json(value: Any) -> None:
    """One JSON value: indented where a person looks, on one line for a program."""
    sys.stdout.write(json_text(value, indented=sys.stdout.isatty()) + "\n")
    sys.stdout.flush()


def json_text(value: Any, *, indented: bool = False) -> str:
    """A value as JSON that commands no terminal and reads as it is written: others' words are escaped and not changed."""
    return visible_text.escaped(orjson.dumps(value, option=orjson.OPT_INDENT_2 if indented else 0).decode())


def print_text(content: Any) -> None:
    """A table or a sentence. What is not looked at by a person is never cut to a width."""
    console = Console(highlight=False, soft_wrap=isinstance(content, str))
    if not console.is_terminal:
        console = Console(highlight=False, soft_wrap=isinstance(content, str), width=240)
    console.print(visible_text.plain(content) if isinstance(content, str) else content, markup=False)
    sys.stdout.flush()


def print_error(message: str) -> None:
    """Why the command did not do it."""
    sys.stderr.write(f"speedinfer: {visible_text.plain(message)}\n")


def print_note(message: str) -> None:
    """Something worth knowing that is no result."""
    sys.stderr.write(f"{visible_text.plain(message)}\n")
    sys.stderr.flush()


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A table; a column whose name begins with `>` is set to the right."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        right = column.startswith(">")
        made.add_column(column.removeprefix(">"), justify="right" if right else "left", overflow="fold")
    for row in rows:
        made.add_row(*("" if cell is None else _plain(cell) for cell in row))
    return made


def details(value: dict[str, Any]) -> Table:
    """One thing, a line for each of its values."""
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(style="bold")
    made.add_column(overflow="fold")
    for name, cell in value.items():
        if cell is not None and cell != "" and cell != [] and cell != {}:
            made.add_row(name, _plain(cell))
    return made


def leave_pipe() -> None:
    """The reader of our output left; keep the interpreter from complaining about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _plain(cell: Any) -> Text:
    if isinstance(cell, list):
        text = ", ".join(_plain(item).plain for item in cell)
    elif isinstance(cell, dict):
        text = orjson.dumps(cell).decode()
    else:
        text = str(cell)
    # Names are others' words: none is a terminal's command, and as Text, square brackets in them are no markup.
    return Text(visible_text.plain(text))
