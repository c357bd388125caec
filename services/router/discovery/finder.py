"""Workers that are found instead of registered one by one. The app starts it; each source looks in its own way (`port.py`).

What is found is in no store: each router looks for itself, and the source's owner says who is there. Invariants, whatever the
source: an address passes the same rules as a registered one; a source that fails changes nothing; a worker whose address went
gets nothing new and ends what runs there; what operators registered under an id is never replaced.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

import structlog

from services.common.settings import RouterLimits
from services.common.tasks import TaskSet
from services.router import registration as registrations
from services.router.discovery.port import Source, Unseen
from services.router.discovery.template import Template
from services.router.registration import InvalidRegistration
from services.router.roster import Roster

_log = structlog.get_logger(__name__)

# How long a start waits for what the sources say first; they go on looking after that.
FIRST_SIGHT_S = 5.0
# A library may lose a cancellation inside; it is said again this often, so many times.
CANCEL_AGAIN_S = 0.1
MAX_CANCELLATIONS = 100


class Finder:
    """All sources of one router."""

    def __init__(self, roster: Roster, found_by: Sequence[tuple[Template, Source]], limits: RouterLimits) -> None:
        self._roster = roster
        self._limits = limits
        self._tasks = TaskSet()
        self._closed = False
        self._origins = [_Origin(template, source) for template, source in found_by]

    async def start(self) -> None:
        """Look until `close`; answers when each source has said something, or soon after."""
        looks = [asyncio.ensure_future(origin.looked.wait()) for origin in self._origins]
        for origin in self._origins:
            self._tasks.spawn(self._follow(origin), f"discover {origin.source.title}")
        if looks:
            _, late = await asyncio.wait(looks, timeout=FIRST_SIGHT_S)
            for look in late:
                look.cancel()

    async def close(self) -> None:
        """Look no more; the workers stay. Ends whatever the sources make of being cancelled."""
        self._closed = True
        for _ in range(MAX_CANCELLATIONS):
            running = set(self._tasks)
            if not running:
                return
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=CANCEL_AGAIN_S)
        _log.error("discovery_not_ended", tasks=sorted(task.get_name() for task in self._tasks))

    async def _follow(self, origin: "_Origin") -> None:
        while not self._closed:
            try:
                await self._listen(origin)
            except Exception as error:
                # A bug of the source: what it found stands, and it starts over.
                _log.error("source_broke", by=origin.source.title, error=type(error).__name__, exc_info=error)
            await asyncio.sleep(self._limits.discover_interval_s)

    async def _listen(self, origin: "_Origin") -> None:
        async with aclosing(origin.source.sightings()) as sightings:
            async for sighting in sightings:
                if self._closed:
                    return
                if isinstance(sighting, Unseen):
                    _log.warning("source_failed", by=origin.source.title, why=sighting.why)
                else:
                    self._take(origin, origin.template.at(sighting))
                origin.looked.set()

    def _take(self, origin: "_Origin", wanted: Mapping[str, dict[str, Any]]) -> None:
        for worker_id in origin.endpoints.keys() - wanted.keys():
            self._forget(origin, worker_id)
        for worker_id in origin.refused.keys() - wanted.keys():
            del origin.refused[worker_id]
        for worker_id, document in wanted.items():
            endpoint = document["runtime_endpoint"]
            if origin.endpoints.get(worker_id) == endpoint:
                continue
            if worker_id in origin.endpoints:
                # Another address under the same id is another worker.
                self._forget(origin, worker_id)
            try:
                self._add(origin, worker_id, document)
            except InvalidRegistration as error:
                # Said once, and not every few seconds.
                if origin.refused.get(worker_id) != str(error):
                    origin.refused[worker_id] = str(error)
                    _log.error("worker_not_taken", worker_id=worker_id, by=origin.source.title, why=str(error))
                continue
            origin.refused.pop(worker_id, None)
            origin.endpoints[worker_id] = endpoint
            _log.info("worker_found", worker_id=worker_id, by=origin.source.title)

    def _add(self, origin: "_Origin", worker_id: str, document: Mapping[str, Any]) -> None:
        registry = self._roster.registry
        registration = registrations.read(document, self._roster.networks)
        if registry.get(worker_id) is not None:
            raise InvalidRegistration("worker_id", "it is registered already")
        if len(registry) >= self._limits.max_workers:
            raise InvalidRegistration("worker_id", "there are as many workers as there may be")
        worker = self._roster.make(registration, time.time())
        worker.found_by = origin.source.title
        self._roster.put(worker)

    def _forget(self, origin: "_Origin", worker_id: str) -> None:
        del origin.endpoints[worker_id]
        self._roster.remove(worker_id)
        _log.info("worker_gone", worker_id=worker_id, by=origin.source.title)


class _Origin:
    """One source, and what was made of it."""

    def __init__(self, template: Template, source: Source) -> None:
        self.template = template
        self.source = source
        # Set once it has said something.
        self.looked = asyncio.Event()
        # Workers that were taken: id -> endpoint.
        self.endpoints: dict[str, str] = {}
        # Found, and not taken: id -> why.
        self.refused: dict[str, str] = {}
