"""The edge's process: reads settings, makes the edge, waits for a signal, drains. Nothing but the command imports it."""

import asyncio

from services.common import admin_token, process
from services.common.settings import Settings
from services.edge.app import Edge


def main(settings: Settings) -> int:
    """Run an edge until a signal; answers the exit code."""

    async def serve(stop: asyncio.Event) -> None:
        edge = Edge(settings, admin_token.load_or_make(settings.token, settings.data_dir))
        try:
            await edge.start()
            await stop.wait()
        finally:
            await edge.drain()

    return process.run("edge", settings.log_level, serve)
