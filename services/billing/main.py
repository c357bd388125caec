"""Billing's composition root: settings in, exit code out. Only the `speedinfer` command calls it."""

import asyncio

from services.billing.app import Billing
from services.common import handover, process
from services.common.errors import ConfigurationError, ServiceError
from services.common.settings import Settings


def main(settings: Settings, *, take_over: bool = False) -> int:
    """Serve until a signal or a successor asks for a drain."""

    async def serve(stop: asyncio.Event) -> None:
        billing = Billing(settings)
        try:
            # A ledger that is elsewhere makes none.
            settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            place = handover.place(settings.data_dir, "billing", settings.billing.listen)
            await handover.serve(billing, place, stop, take_over=take_over)
        except ServiceError as error:
            raise ConfigurationError(error.message) from error
        await billing.drain()

    return process.run("billing", settings.log_level, serve)
