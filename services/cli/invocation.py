"""How a command of ours is declared: `--config` and `--json` on each, and one place where errors become exit codes.

A command is a plain function whose first parameter is an Invocation. Both options are taken before the noun, between noun
and verb, and after the verb, because people put them everywhere. Imported by the command's modules only.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli import output
from services.cli.failure import CommandError
from services.common import settings
from services.common.errors import ConfigurationError

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings file; default: $SPEEDINFER_CONFIG, else speedinfer.toml."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else.")]


@dataclass(frozen=True, slots=True)
class Invocation:
    """What every command is told."""

    config: Path | None = None
    as_json: bool = False

    def settings(self) -> settings.Settings:
        """The settings. ConfigurationError if they are wrong."""
        return settings.load(self.config)

    def show(self, value: Any, text: Callable[[], Any]) -> None:
        """Print `value` as JSON, or what `text` makes of it (a table or a sentence) where a person asked."""
        if self.as_json:
            output.print_json(value)
        else:
            output.print_text(text())


def new_app(help_text: str) -> typer.Typer:
    """A noun, which takes both options itself and hands them on."""
    app = _bare_app(help_text)
    app.callback()(_remember)
    return app


def new_root(help_text: str) -> typer.Typer:
    """The whole command: as a noun, and it tells its version."""
    app = _bare_app(help_text)
    app.callback()(_remember_or_tell_version)
    return app


def _bare_app(help_text: str) -> typer.Typer:
    return typer.Typer(
        help=help_text,
        no_args_is_help=True,
        # A traceback with local variables could show a key.
        pretty_exceptions_enable=False,
        pretty_exceptions_show_locals=False,
        add_completion=False,
        rich_markup_mode="rich",
    )


def command(
    app: typer.Typer, name: str, **how: Any
) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Declare a command; its function gets an Invocation and answers an exit code, None meaning 0."""

    def declare(function: Callable[..., int | None]) -> Callable[..., int | None]:
        signature = inspect.signature(function)
        own = list(signature.parameters.values())[1:]

        @functools.wraps(function)
        def run(context: typer.Context, config: Path | None, as_json: bool, **arguments: Any) -> None:
            earlier = context.obj if isinstance(context.obj, Invocation) else Invocation()
            invocation = Invocation(config or earlier.config, as_json or earlier.as_json)
            raise typer.Exit(_outcome(function, invocation, arguments))

        added = {"context": typer.Context, "config": ConfigOption, "as_json": JsonOption}
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [inspect.Parameter("context", keyword, annotation=typer.Context)]
        parameters += [parameter.replace(kind=keyword) for parameter in own]
        parameters += [
            inspect.Parameter("config", keyword, default=None, annotation=ConfigOption),
            inspect.Parameter("as_json", keyword, default=False, annotation=JsonOption),
        ]
        # Typer reads both; functools.wraps has set them to the inner function's.
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in own} | added
        app.command(name, **how)(run)
        return function

    return declare


def _remember(context: typer.Context, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    earlier = context.obj if isinstance(context.obj, Invocation) else Invocation()
    context.obj = Invocation(config or earlier.config, as_json or earlier.as_json)


def _tell_version(asked: bool) -> None:
    if asked:
        output.print_text(f"speedinfer {version('speedinfer')}")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and end.")
]


def _remember_or_tell_version(
    context: typer.Context, config: ConfigOption = None, as_json: JsonOption = False, _version: VersionOption = False
) -> None:
    _remember(context, config, as_json)


def _outcome(function: Callable[..., int | None], invocation: Invocation, arguments: dict[str, Any]) -> int:
    try:
        return function(invocation, **arguments) or 0
    except (CommandError, ConfigurationError) as error:
        output.print_error(str(error))
    except BrokenPipeError:
        output.leave_pipe()
    except KeyboardInterrupt:
        return 130
    return 1
