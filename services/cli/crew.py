"""Several edge processes on one address: `edge.workers`, or `speedinfer edge --workers N`. Imported by `service.py` only.

The crew opens the listening sockets and serves nothing itself: each of its processes accepts at the same ones, so that whoever
is free takes the next connection and one that dies leaves nobody in a queue of its own. To a successor, and to whom it
succeeds, a crew is one edge (decision 0018). Of operators' listeners each process has its own, at the ports that follow.
"""

import asyncio
import itertools
import json
import os
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import structlog

from services.cli import ports, readiness
from services.cli.supervisor import EXIT_MARGIN_S, Program, Supervisor
from services.common import admin_token, handover, listen, process
from services.common.handover import Listeners, Predecessor
from services.common.settings import Settings

_log = structlog.get_logger(__name__)


class Crew:
    """See handover.Service."""

    def __init__(self, settings: Settings, config: Path | None, stop: asyncio.Event) -> None:
        self._settings = settings
        self._config = config
        self._stop = stop
        # By setting and address, as an edge names its own.
        self._sockets: dict[str, list[socket.socket]] = {}
        self._supervisor: Supervisor | None = None

    async def start(self, predecessor: Predecessor | None = None) -> None:
        """Open the sockets, or take a predecessor's; start every process and wait until each listens."""
        given = predecessor.listeners if predecessor is not None else {}
        edge = self._settings.edge
        public = await self._open(edge.listen, "edge.listen", given)
        programs = []
        for index in range(edge.workers):
            address = ports.following(edge.admin_listen, "edge.admin_listen", index)
            # At port 0 each finds one for itself.
            admin = [] if address.endswith(":0") else [await self._open(address, "edge.admin_listen", given)]
            programs.append(self._program(index, [public, *admin], address))
        self._supervisor = Supervisor(programs, _say)
        await self._supervisor.start(self._stop)

    async def drain(self) -> bool:
        """Drain all processes at once; False if one of them did not end well."""
        self._close()
        return self._supervisor is None or await self._supervisor.stop(together=True)

    def listeners(self) -> Listeners:
        """See handover.Service."""
        return {name: [each.fileno() for each in sockets] for name, sockets in self._sockets.items()}

    async def prepare(self) -> None:
        """See handover.Service."""

    async def resume(self) -> None:
        """See handover.Service."""

    async def leave(self) -> None:
        """See handover.Service: every process leaves, each when its last connection has gone."""
        self._close()
        if self._supervisor is not None:
            self._supervisor.let_go(handover.LEAVE)

    async def linger(self, stop: asyncio.Event) -> None:
        """See handover.Service."""
        if self._supervisor is None:
            return
        waits = [asyncio.ensure_future(wait) for wait in (self._supervisor.ended(), stop.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _close(self) -> None:
        sockets, self._sockets = self._sockets, {}
        for some in sockets.values():
            for each in some:
                each.close()

    async def _open(self, address: str, setting: str, given: dict[str, list[socket.socket]]) -> str:
        """Listen, or take what was given; the name under which the sockets are kept."""
        name = f"{setting} {address}"
        host, port = listen.split(address, setting)
        try:
            self._sockets[name] = given.pop(name, []) or await _bound(host, port)
        except OSError as error:
            raise OSError(f"cannot listen on {address} ({setting}): {error.strerror}") from error
        return name

    def _program(self, index: int, names: Sequence[str], admin: str) -> Program:
        descriptors = {name: [each.fileno() for each in self._sockets[name]] for name in names}
        options = ["--config", str(self._config)] if self._config is not None else []
        command = [sys.executable, "-m", "services.cli.main", "edge", *options, "--with-parent", str(os.getpid())]
        at = [f"--member={index}", f"--sockets={json.dumps(descriptors)}"]
        where = ports.loopback(self._settings.edge.listen if admin.endswith(":0") else admin, "edge.admin_listen")
        return Program(
            f"edge worker {index}",
            command + at,
            partial(readiness.edge_lives, where),
            self._settings.edge.limits.drain_s + EXIT_MARGIN_S,
            tuple(each for some in descriptors.values() for each in some),
        )


def _say(text: str) -> None:
    _log.warning("edge_worker", what=text)


async def _bound(host: str, port: int) -> list[socket.socket]:
    """Sockets that are bound to an address, one for each that a name has; who accepts at them makes them listen."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
    try:
        return [socket.socket(fileno=os.dup(each.fileno())) for each in server.sockets]
    finally:
        server.close()


def run(settings: Settings, config: Path | None, *, take_over: bool) -> int:
    """Run a crew until a signal or its successor ends it; answers the exit code."""
    # Made before the processes look for it, so that all of them read one.
    admin_token.load_or_make(settings.token, settings.data_dir)

    async def serve(stop: asyncio.Event) -> None:
        crew = Crew(settings, config, stop)
        well = False
        try:
            place = handover.place(settings.data_dir, "edge", settings.edge.listen)
            await handover.serve(crew, place, stop, take_over=take_over)
        finally:
            well = await crew.drain()
        if not well:
            raise OSError("not every edge worker ended well; what they said stands above")

    return process.run("edge", settings.log_level, serve)


def given(sockets: str) -> dict[str, list[socket.socket]]:
    """What one of the processes was started with; its sockets are not for children of its own."""
    named: dict[str, list[int]] = json.loads(sockets)
    for descriptor in itertools.chain.from_iterable(named.values()):
        os.set_inheritable(descriptor, False)
    return {name: [socket.socket(fileno=each) for each in some] for name, some in named.items()}


def settings_of(settings: Settings, index: int) -> Settings:
    """The settings of one of the processes: operators' listeners follow one another."""
    admin = ports.following(settings.edge.admin_listen, "edge.admin_listen", index)
    return settings.model_copy(update={"edge": settings.edge.model_copy(update={"admin_listen": admin})})
