"""`speedinfer edge`, `router`, `billing`: one service in this process. Its module is imported only when it is asked for."""

import importlib
from typing import Annotated, Literal

import typer

from services.cli.invocation import Invocation
from services.cli.lifeline import drain_without_parent

Name = Literal["edge", "router", "billing"]
Parent = Annotated[int, typer.Option("--with-parent", hidden=True, help="Drain when this process is gone.")]


def run(invocation: Invocation, name: Name, parent: int) -> int:
    """Run a service until it is asked to stop; answers its exit code."""
    settings = invocation.settings()
    if parent:
        drain_without_parent(parent)
    code: int = importlib.import_module(f"services.{name}.main").main(settings)
    return code


def edge(invocation: Invocation, parent: Parent = 0) -> int:
    """Run the edge: the public HTTP face."""
    return run(invocation, "edge", parent)


def router(invocation: Invocation, parent: Parent = 0) -> int:
    """Run the router: workers, their health, and the way to them."""
    return run(invocation, "router", parent)


def billing(invocation: Invocation, parent: Parent = 0) -> int:
    """Run billing: accounts, keys, prices, holds and the ledger."""
    return run(invocation, "billing", parent)
