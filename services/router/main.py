"""The router's process: reads nothing but its settings, runs until it is told to stop. Nothing imports it but the command."""

import asyncio

from services.common import handover, process
from services.common.settings import Settings
from services.router.app import Router


def main(settings: Settings, *, take_over: bool = False) -> int:
    """Run the router; answers the exit code."""

    async def serve(stop: asyncio.Event) -> None:
        router = Router(settings)
        try:
            place = handover.place(settings.data_dir, "router", settings.router.listen)
            await handover.serve(router, place, stop, take_over=take_over)
        finally:
            await router.drain()

    return process.run("router", settings.log_level, serve)
