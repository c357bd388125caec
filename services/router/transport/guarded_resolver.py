"""Name resolution that never answers an address which no worker may have. The HTTP transports import it.

The address that was judged is the one that is connected to: there is no second look-up in between.
"""

import socket

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from services.router import endpoint


class GuardedResolver(AbstractResolver):
    """The system's resolver, behind the rules of `endpoint.py`."""

    def __init__(self) -> None:
        self._system = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The allowed addresses of `host`. OSError if there is none."""
        found = await self._system.resolve(host, port, family)
        allowed = [result for result in found if not endpoint.forbidden(result["host"])]
        if not allowed:
            raise OSError(None, "the name resolves only to addresses that no worker may have")
        return allowed

    async def close(self) -> None:
        """Nothing is held."""
        await self._system.close()
