"""The `speedinfer` command in this process, which is much faster than one of its own. The tree of its commands is made once:
making it costs more than most of the commands."""

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from services.cli.main import app


@cache
def _tree() -> Any:
    return get_command(app)


def run(arguments: Sequence[str], stdin: str | None, environment: Mapping[str, str | None]) -> tuple[int, str, str]:
    """(exit code, standard output, standard error)."""
    with CliRunner().isolation(input=stdin, env=environment) as (output, errors, _both):
        code = 0
        try:
            _tree().main(args=list(arguments), prog_name="speedinfer")
        except SystemExit as end:
            code = int(end.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
        return code, output.getvalue().decode(), errors.getvalue().decode()
