"""Name resolution that never answers an address which no worker may have. The transports import it.

The address that was judged is the one that is connected to: there is no second look-up in between, whoever connects.
"""

import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from services.router.networks import EVERYWHERE, Networks
from services.router.transport.name_lookup import LOOKUP, NameLookup

# How long an answer stands. What is connected to later is still what was judged.
RESOLVED_FOR_S = 10


class NotAllowed(OSError):
    """A name that resolves only to addresses which no worker may have; the text says which, for operators."""


class GuardedResolver(AbstractResolver):
    """The system's resolver, behind the rules of `networks.py`."""

    def __init__(self, networks: Networks = EVERYWHERE, lookup: NameLookup = LOOKUP) -> None:
        self._networks = networks
        self._lookup = lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The allowed addresses of `host`. NotAllowed if there is none, another OSError if it has none."""
        found = await self._lookup.addresses(host, port, family)
        refusals = [self._networks.refusal(address) for _, _, address in found]
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        allowed = [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=protocol, flags=flags)
            for (kind, protocol, address), refusal in zip(found, refusals, strict=True)
            if not refusal
        ]
        if not allowed:
            raise NotAllowed(None, f"no worker may be at {host}: it is {', and '.join(dict.fromkeys(refusals))}")
        return allowed

    async def close(self) -> None:
        """Nothing is held."""
