"""`speedinfer edge`, `router`, `billing`: one service in this process. Its module is imported only when it is asked for."""

import importlib
from typing import Annotated, Literal

import typer

from services.cli import ports, presence
from services.cli.failure import CommandError
from services.cli.invocation import Invocation
from services.cli.lifeline import drain_without_parent
from services.common.settings import Settings

Name = Literal["edge", "router", "billing"]
Parent = Annotated[int, typer.Option("--with-parent", hidden=True, help="Drain when this process is gone.")]

# Beyond a service's own drain: its process has to end, too.
EXIT_MARGIN_S = 15.0


def run(invocation: Invocation, name: Name, parent: int) -> int:
    """Run a service until it is asked to stop; answers its exit code."""
    settings = invocation.settings()
    if parent:
        # Held before it is ready, so that no stream runs through a service that the others do not see.
        presence.hold(settings.data_dir, name)
        before = ends_before(settings, name)
        drain_without_parent(parent, (lambda: _wait(settings, before)) if before else None)
    if taken := ports.obstacles(settings, [name]):
        raise CommandError("\n".join(taken))
    code: int = importlib.import_module(f"services.{name}.main").main(settings)
    return code


def ends_before(settings: Settings, name: Name) -> dict[str, float]:
    """The services that need this one to their end, in the order in which they end, and how long each may take."""
    edge_s = settings.edge.limits.drain_s + EXIT_MARGIN_S
    router_s = settings.router.limits.drain_s + EXIT_MARGIN_S
    return {"edge": {}, "router": {"edge": edge_s}, "billing": {"edge": edge_s, "router": router_s}}[name]


def _wait(settings: Settings, before: dict[str, float]) -> None:
    for service, at_most_s in before.items():
        presence.wait_until_gone(settings.data_dir, service, at_most_s)


def edge(invocation: Invocation, parent: Parent = 0) -> int:
    """Run the edge: the public HTTP face."""
    return run(invocation, "edge", parent)


def router(invocation: Invocation, parent: Parent = 0) -> int:
    """Run the router: workers, their health, and the way to them."""
    return run(invocation, "router", parent)


def billing(invocation: Invocation, parent: Parent = 0) -> int:
    """Run billing: accounts, keys, prices, holds and the ledger."""
    return run(invocation, "billing", parent)
