"""The addresses of a name (A, AAAA, or what else the system's resolver knows): each is a worker. `sources.py` makes it."""

import asyncio
import socket
from collections.abc import AsyncGenerator

from services.router.discovery.absence import Absence
from services.router.discovery.port import Found, Sighting, Unseen
from services.router.transport.name_lookup import NameLookup

LOOK_UP_WITHIN_S = 5.0
_NO_SUCH_NAME = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})


class NameSource:
    """A name, whose workers all listen at one port."""

    def __init__(self, name: str, port: int, interval_s: float, lookup: NameLookup) -> None:
        self.title = f"the name {name}"
        self._name = name
        self._port = port
        self._interval_s = interval_s
        self._lookup = lookup
        self._absence = Absence()

    async def sightings(self) -> AsyncGenerator[Sighting, None]:
        """See port.Source."""
        while True:
            yield await self._look()
            await asyncio.sleep(self._interval_s)

    async def _look(self) -> Sighting:
        try:
            async with asyncio.timeout(LOOK_UP_WITHIN_S):
                found = await self._lookup.addresses(self._name, self._port, socket.AF_UNSPEC)
        except OSError as error:
            if not (isinstance(error, socket.gaierror) and error.errno in _NO_SUCH_NAME):
                self._absence.forget()
            elif self._absence.is_believed():
                return frozenset()
            return Unseen(f"it is not resolved ({type(error).__name__})")
        self._absence.forget()
        return frozenset(Found(address, self._port) for _, _, address in found)
