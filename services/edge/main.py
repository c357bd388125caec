"""The edge's process: makes the edge, waits for a signal or a successor, drains. Nothing but the command imports it."""

import asyncio

from services.common import admin_token, handover, process
from services.common.settings import Settings
from services.edge.app import Edge


def main(settings: Settings, *, take_over: bool = False) -> int:
    """Run an edge until a signal or its successor ends it; answers the exit code."""

    async def serve(stop: asyncio.Event) -> None:
        edge = Edge(settings, admin_token.load_or_make(settings.token, settings.data_dir))
        try:
            place = handover.place(settings.data_dir, "edge", settings.edge.listen)
            await handover.serve(edge, place, stop, take_over=take_over)
        finally:
            await edge.drain()

    return process.run("edge", settings.log_level, serve)
