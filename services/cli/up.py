"""`speedinfer up`: billing, router and edge on one machine, each a process of its own, speaking gRPC to each other."""

import asyncio
import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from services.cli import output, ports, presence, readiness
from services.cli.failure import CommandError
from services.cli.invocation import Invocation
from services.cli.lifeline import drain_without_parent
from services.cli.service import Parent
from services.cli.supervisor import EXIT_MARGIN_S, Program, Supervisor
from services.common import admin_token, process
from services.common.settings import Settings

LOCK_NAME = "up.lock"
SERVICES = ("edge", "router", "billing")


def up(invocation: Invocation, parent: Parent = 0) -> int:
    """Run all three services on this machine; Ctrl-C or SIGTERM drains them."""
    settings = invocation.settings()
    if parent:
        drain_without_parent(parent)
    with _only_one(settings.data_dir):
        # What an `up` that was killed left still has its ports, and with other ports it would still have its files.
        if in_the_way := presence.left_behind(settings.data_dir, SERVICES) or ports.obstacles(settings, SERVICES):
            raise CommandError("\n".join(in_the_way))
        # Made before the services look for it, so that all three read one.
        admin_token.load_or_make(settings.token, settings.data_dir)
        return process.run("up", settings.log_level, partial(_supervise, invocation, settings))


async def _supervise(invocation: Invocation, settings: Settings, stop: asyncio.Event) -> None:
    supervisor = Supervisor(programs(invocation.config, settings), output.print_note)
    try:
        if await supervisor.start(stop):
            _announce(invocation, settings, supervisor.pids)
            await stop.wait()
    finally:
        well = await supervisor.stop()
    if not well:
        raise OSError("not every service ended well; what they said stands above")


def programs(config: Path | None, settings: Settings) -> list[Program]:
    """The three services in the order in which they start."""
    edge = ports.loopback(settings.edge.listen, "edge.listen")
    router = ports.loopback(settings.router.listen, "router.listen")
    billing = ports.loopback(settings.billing.listen, "billing.listen")
    return [
        Program(
            "billing",
            _command("billing", config),
            partial(readiness.grpc_health, billing),
            settings.billing.limits.drain_s + EXIT_MARGIN_S,
        ),
        Program(
            "router",
            _command("router", config),
            partial(readiness.grpc_health, router),
            settings.router.limits.drain_s + EXIT_MARGIN_S,
        ),
        Program(
            "edge",
            _command("edge", config),
            partial(readiness.edge_ready, edge),
            settings.edge.limits.drain_s + EXIT_MARGIN_S,
        ),
    ]


def _command(name: str, config: Path | None) -> list[str]:
    options = ["--config", str(config)] if config is not None else []
    return [sys.executable, "-m", "services.cli.main", name, *options, "--with-parent", str(os.getpid())]


def _announce(invocation: Invocation, settings: Settings, pids: dict[str, int]) -> None:
    value = {
        "base_url": f"http://{ports.loopback(settings.edge.listen, 'edge.listen')}/v1",
        "admin_url": f"http://{ports.loopback(settings.edge.admin_listen, 'edge.admin_listen')}",
        "router": settings.router_target,
        "billing": settings.billing_target,
        "data_dir": str(settings.data_dir.absolute()),
        "pids": pids,
    }
    invocation.show(value, lambda: f"SpeedInfer is ready: {value['base_url']}")


@contextlib.contextmanager
def _only_one(data_dir: Path) -> Iterator[None]:
    """Hold the data folder for this process. CommandError if another `up` has it."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(data_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CommandError(f"data_dir {data_dir} cannot be used: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CommandError(
                f"another `speedinfer up` (process {_owner(descriptor)}) runs on {data_dir.absolute()}; stop it, or choose"
                " another folder with SPEEDINFER_DATA_DIR"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _owner(descriptor: int) -> str:
    return os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
