"""Billing's composition root: settings in, exit code out. Only the `speedinfer` command calls it."""

import asyncio

import structlog

from services.billing.app import Billing
from services.common import process
from services.common.errors import ConfigurationError, ServiceError
from services.common.settings import Settings

_log = structlog.get_logger(__name__)


def main(settings: Settings) -> int:
    """Serve until a signal asks for a drain."""

    async def serve(stop: asyncio.Event) -> None:
        billing = Billing(settings)
        try:
            port = await billing.start()
        except ServiceError as error:
            raise ConfigurationError(error.message) from error
        _log.info("serving", listen=settings.billing.listen, port=port)
        await stop.wait()
        await billing.drain()
        _log.info("stopped")

    return process.run("billing", settings.log_level, serve)
