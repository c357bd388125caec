"""The edge's process: makes the edge, waits for a signal or a successor, drains. Nothing but the command imports it."""

import asyncio
import socket
from collections.abc import Mapping, Sequence

from services.common import admin_token, handover, process
from services.common.settings import Settings
from services.edge.app import Edge


def main(
    settings: Settings, *, take_over: bool = False, given: Mapping[str, Sequence[socket.socket]] | None = None
) -> int:
    """Run an edge until a signal or its successor ends it; answers the exit code. `given`: it is one of several, which
    have these listening sockets, and is told when all of them are succeeded."""

    async def serve(stop: asyncio.Event) -> None:
        edge = Edge(settings, admin_token.load_or_make(settings.token, settings.data_dir))
        try:
            if given is not None:
                await _serve_among_others(edge, given, stop)
            else:
                place = handover.place(settings.data_dir, "edge", settings.edge.listen)
                await handover.serve(edge, place, stop, take_over=take_over)
        finally:
            await edge.drain()

    return process.run("edge", settings.log_level, serve)


async def _serve_among_others(edge: Edge, given: Mapping[str, Sequence[socket.socket]], stop: asyncio.Event) -> None:
    succeeded = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(handover.LEAVE, succeeded.set)
    await edge.start(given={name: list(sockets) for name, sockets in given.items()})
    await handover.either(stop, succeeded)
    if not stop.is_set():
        await edge.leave()
        await edge.linger(stop)
