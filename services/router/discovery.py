"""Workers that are found by a name instead of registered one by one: each address of the name is one. The app starts it.

What is found is in no store: each router looks for itself, and the name's owner says who is there. Invariants: an address
passes the same rules as a registered one; a look-up that fails, or takes too long, changes nothing; a worker whose address went
gets nothing new and ends what runs there; what operators registered under an id is never replaced.
"""

import asyncio
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import structlog

from services.common.errors import ConfigurationError
from services.common.settings import RouterLimits
from services.common.tasks import TaskSet
from services.router import registration as registrations
from services.router.networks import EVERYWHERE
from services.router.registration import InvalidRegistration
from services.router.roster import Roster
from services.router.transport.name_lookup import LOOKUP, NameLookup

_log = structlog.get_logger(__name__)

LOOK_UP_WITHIN_S = 5.0
# That there is no such name is believed only when it was said so often in a row: resolvers say it in their bad moments, too.
LOOKS_TO_BELIEVE_GONE = 3
_NO_SUCH_NAME = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})


class Template:
    """A registration whose endpoint's host is the name; its id is how the workers' ids begin."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """InvalidRegistration if no worker can be made of it."""
        registration = registrations.read(document)
        parts = urlsplit(registration.endpoint)
        assert parts.hostname, "a registration's endpoint has a host"
        if EVERYWHERE.refusal(parts.hostname) != "no IP address":
            raise InvalidRegistration("runtime_endpoint", "runtime_endpoint: it must have a name for a host")
        if parts.scheme != "http":
            # A certificate is for the name, and what is connected to is an address.
            raise InvalidRegistration("runtime_endpoint", "runtime_endpoint: it must begin with http://")
        if getattr(registration.config, "grpc_endpoint", None):
            raise InvalidRegistration(
                "runtime_config.grpc_endpoint", "runtime_config.grpc_endpoint: it would be the same for all addresses"
            )
        self.name: str = parts.hostname
        self.port = parts.port or 80
        self._document = document
        self._path = parts.path

    def at(self, addresses: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The registrations of the workers at these addresses, by id."""
        found: dict[str, dict[str, Any]] = {}
        for address in sorted(set(addresses)):
            host = f"[{address}]" if ":" in address else address
            worker_id = f"{self._document['worker_id']}-{address}"
            endpoint = f"http://{host}:{self.port}{self._path}"
            found[worker_id] = {**self._document, "worker_id": worker_id, "runtime_endpoint": endpoint}
        return found


class Discovery:
    """All names of one router."""

    def __init__(
        self, roster: Roster, documents: Sequence[Mapping[str, Any]], limits: RouterLimits, lookup: NameLookup = LOOKUP
    ) -> None:
        """ConfigurationError names what is wrong with one of the documents."""
        self._roster = roster
        self._limits = limits
        self._lookup = lookup
        self._tasks = TaskSet()
        self._names: list[_Name] = []
        for number, document in enumerate(documents):
            try:
                self._names.append(_Name(Template(document)))
            except InvalidRegistration as error:
                raise ConfigurationError(f"discover[{number}]: {error}") from None

    async def start(self) -> None:
        """Look once, and then again and again until `close`."""
        await asyncio.gather(*map(self._look, self._names))
        for name in self._names:
            self._tasks.spawn(self._watch(name), f"discover-{name.template.name}")

    async def close(self) -> None:
        """Look no more; the workers stay."""
        await self._tasks.cancel()

    async def _watch(self, name: "_Name") -> None:
        while True:
            await asyncio.sleep(self._limits.discover_interval_s)
            await self._look(name)

    async def _look(self, name: "_Name") -> None:
        template = name.template
        try:
            async with asyncio.timeout(LOOK_UP_WITHIN_S):
                found = await self._lookup.addresses(template.name, template.port, socket.AF_UNSPEC)
        except OSError as error:
            is_gone = isinstance(error, socket.gaierror) and error.errno in _NO_SUCH_NAME
            name.times_gone = name.times_gone + 1 if is_gone else 0
            if name.times_gone < LOOKS_TO_BELIEVE_GONE:
                _log.warning("name_not_resolved", name=template.name, error=type(error).__name__)
                return
            found = []
        else:
            name.times_gone = 0
        self._take(name, template.at(address for _, _, address in found))

    def _take(self, name: "_Name", wanted: Mapping[str, dict[str, Any]]) -> None:
        registry = self._roster.registry
        for worker_id in name.worker_ids - wanted.keys():
            name.worker_ids.discard(worker_id)
            self._roster.remove(worker_id)
            _log.info("worker_gone", worker_id=worker_id, name=name.template.name)
        name.refused &= wanted.keys()
        for worker_id in wanted.keys() - name.worker_ids - name.refused:
            try:
                registration = registrations.read(wanted[worker_id], self._roster.networks)
                if registry.get(worker_id) is not None:
                    raise InvalidRegistration("worker_id", "it is registered already")
                if len(registry) >= self._limits.max_workers:
                    raise InvalidRegistration("worker_id", "there are as many workers as there may be")
            except InvalidRegistration as error:
                # Said once, and not every few seconds.
                name.refused.add(worker_id)
                _log.error("worker_not_taken", worker_id=worker_id, name=name.template.name, why=str(error))
                continue
            name.worker_ids.add(worker_id)
            worker = self._roster.make(registration, time.time())
            worker.found_by = name.template.name
            self._roster.put(worker)
            _log.info("worker_found", worker_id=worker_id, name=name.template.name)


class _Name:
    """One name, and what was made of it."""

    def __init__(self, template: Template) -> None:
        self.template = template
        self.worker_ids: set[str] = set()
        # Found, and not taken.
        self.refused: set[str] = set()
        # How often in a row it was said that there is none.
        self.times_gone = 0
