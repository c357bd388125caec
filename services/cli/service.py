"""`speedinfer edge`, `router`, `billing`: one service in this process. Its module is imported only when it is asked for."""

import importlib
from typing import Annotated, Literal

import typer

from services.cli import crew, ports, presence
from services.cli.failure import CommandError
from services.cli.invocation import Invocation
from services.cli.lifeline import drain_without_parent
from services.cli.supervisor import EXIT_MARGIN_S
from services.common import handover
from services.common.listen import unix_path
from services.common.settings import Settings

Name = Literal["edge", "router", "billing"]
Parent = Annotated[int, typer.Option("--with-parent", hidden=True, help="Drain when this process is gone.")]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over", help="Succeed the one that runs, which finishes what it has. If none does, just start."
    ),
]

Workers = Annotated[
    int | None, typer.Option("--workers", min=1, max=64, help="Processes at one address; default: `edge.workers`.")
]
# How one of several is started by the process that keeps them.
Member = Annotated[int, typer.Option("--member", hidden=True)]
Sockets = Annotated[str, typer.Option("--sockets", hidden=True)]


def run(invocation: Invocation, settings: Settings, name: Name, parent: int, take_over: bool) -> int:
    """Run a service until it is asked to stop; answers its exit code."""
    _tie(settings, name, parent)
    if take_over and unix_path(getattr(settings, name).listen) is not None:
        # Whoever listens at a Unix socket takes its name with it when it ends, its successor's too.
        raise CommandError(
            f"{name}.listen is a Unix socket, where a service cannot be succeeded; stop the old one first"
        )
    offered = handover.is_offered(handover.place(settings.data_dir, name, getattr(settings, name).listen))
    if not (take_over and offered) and (taken := ports.obstacles(settings, [name])):
        # Asked for in so many words: two by mistake would otherwise be one that silently replaced the other.
        hint = [f"to succeed the {name} that runs there, add --take-over"] if offered else []
        raise CommandError("\n".join(taken + hint))
    if name == "edge" and settings.edge.workers > 1:
        return crew.run(settings, invocation.config, take_over=take_over)
    code: int = importlib.import_module(f"services.{name}.main").main(settings, take_over=take_over)
    return code


def _tie(settings: Settings, name: Name, parent: int) -> None:
    if parent:
        # Held before it is ready, so that no stream runs through a service that the others do not see.
        presence.hold(settings.data_dir, name)
        before = ends_before(settings, name)
        drain_without_parent(parent, (lambda: _wait(settings, before)) if before else None)


def ends_before(settings: Settings, name: Name) -> dict[str, float]:
    """The services that need this one to their end, in the order in which they end, and how long each may take."""
    edge_s = settings.edge.limits.drain_s + EXIT_MARGIN_S
    router_s = settings.router.limits.drain_s + EXIT_MARGIN_S
    return {"edge": {}, "router": {"edge": edge_s}, "billing": {"edge": edge_s, "router": router_s}}[name]


def _wait(settings: Settings, before: dict[str, float]) -> None:
    for service, at_most_s in before.items():
        presence.wait_until_gone(settings.data_dir, service, at_most_s)


def edge(
    invocation: Invocation,
    take_over: TakeOver = False,
    workers: Workers = None,
    parent: Parent = 0,
    member: Member = 0,
    sockets: Sockets = "",
) -> int:
    """Run the edge: the public HTTP face."""
    settings = invocation.settings()
    if sockets:
        _tie(settings, "edge", parent)
        main = importlib.import_module("services.edge.main").main
        code: int = main(crew.settings_of(settings, member), given=crew.given(sockets))
        return code
    if workers is not None:
        settings = settings.model_copy(update={"edge": settings.edge.model_copy(update={"workers": workers})})
    return run(invocation, settings, "edge", parent, take_over)


def router(invocation: Invocation, take_over: TakeOver = False, parent: Parent = 0) -> int:
    """Run the router: workers, their health, and the way to them."""
    return run(invocation, invocation.settings(), "router", parent, take_over)


def billing(invocation: Invocation, take_over: TakeOver = False, parent: Parent = 0) -> int:
    """Run billing: accounts, keys, prices, holds and the ledger."""
    return run(invocation, invocation.settings(), "billing", parent, take_over)
