"""The pods of a Kubernetes service: each is a worker from when it is ready until it terminates. `sources.py` makes it.

List, then watch from there; a watch that ended is resumed at its version. What the API server does not remember (410), an error
in a watch, or an event that cannot be read: list anew. Every failure waits, longer each time, and changes nothing.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from random import Random

import structlog

from services.common.backoff import Backoff
from services.router.discovery.cluster import ClusterError, Stale
from services.router.discovery.endpoint_slices import MAX_SLICES, Change, EndpointSlices
from services.router.discovery.pods import Slice, lacks_port, pods
from services.router.discovery.port import Found, Sighting, Unseen

MAX_PODS = 10_000
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
# A watch that lasted so long went well, even if nothing happened.
GOOD_WATCH_S = 30.0

_log = structlog.get_logger(__name__)


class KubernetesSource:
    """A service, and the port at which its pods are workers."""

    def __init__(
        self, namespace: str, service: str, port: str | int, slices: EndpointSlices, interval_s: float, chance: Random
    ) -> None:
        """`interval_s` bounds the first wait after a failure."""
        self.title = f"the Kubernetes service {namespace}/{service}"
        self._port = port
        self._api = slices
        first_s = min(FIRST_WAIT_S, interval_s)
        self._backoff = Backoff(first_s, first_s * LONGEST_WAIT_S / FIRST_WAIT_S, chance)
        self._slices: dict[str, Slice] = {}
        # UIDs of those that are workers.
        self._known: frozenset[str] = frozenset()
        # Where to watch on; empty: list.
        self._version = ""

    async def sightings(self) -> AsyncGenerator[Sighting, None]:
        """See port.Source."""
        while True:
            try:
                if not self._version:
                    await self._list()
                # Also at each resumption: who was refused for want of room gets another chance.
                yield self._sighting()
                started = asyncio.get_running_loop().time()
                async with aclosing(self._api.watch(self._version)) as changes:
                    async for change in changes:
                        self._backoff.reset()
                        if self._note(change):
                            yield self._sighting()
                if asyncio.get_running_loop().time() - started >= GOOD_WATCH_S:
                    self._backoff.reset()
            except ClusterError as error:
                if isinstance(error, Stale):
                    self._version = ""
                yield Unseen(str(error))
            # After an end in order, too: no server has us ask without a pause.
            await asyncio.sleep(self._backoff.next_s())

    async def _list(self) -> None:
        self._slices, self._version = await self._api.list()
        if not self._slices:
            _log.warning("service_has_no_slices", by=self.title)
        elif lacks_port(self._slices.values(), self._port):
            _log.warning("service_has_no_such_port", by=self.title, port=self._port)

    def _note(self, change: Change) -> bool:
        """Whether something else than the version is another."""
        self._version = change.version
        if len(self._slices) > MAX_SLICES:
            raise Stale(f"the service has more than {MAX_SLICES} EndpointSlices")
        if change.now is not None:
            self._slices[change.now.metadata.name] = change.now
        elif change.gone:
            self._slices.pop(change.gone, None)
        else:
            return False
        return True

    def _sighting(self) -> frozenset[Found] | Unseen:
        found = pods(self._slices.values(), self._port, self._known)
        if len(found) > MAX_PODS:
            return Unseen(f"there are more than {MAX_PODS} pods")
        self._known = frozenset(found)
        return frozenset(found.values())
