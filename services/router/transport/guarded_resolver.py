"""Name resolution that never answers an address which no worker may have. The HTTP transports import it.

The address that was judged is the one that is connected to: there is no second look-up in between.
"""

import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from services.router import endpoint
from services.router.transport.name_lookup import LOOKUP, NameLookup


class GuardedResolver(AbstractResolver):
    """The system's resolver, behind the rules of `endpoint.py`."""

    def __init__(self, lookup: NameLookup = LOOKUP) -> None:
        self._lookup = lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The allowed addresses of `host`. OSError if there is none."""
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        allowed = [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=protocol, flags=flags)
            for kind, protocol, address in await self._lookup.addresses(host, port, family)
            if not endpoint.forbidden(address)
        ]
        if not allowed:
            raise OSError(None, "the name resolves only to addresses that no worker may have")
        return allowed

    async def close(self) -> None:
        """Nothing is held."""
