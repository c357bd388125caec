"""The rules for what is found, whatever finds it: a source of the test's own says what is there."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from services.common.settings import RouterLimits
from services.router.discovery.finder import Finder
from services.router.discovery.port import Found, Sighting, Unseen
from services.router.discovery.template import Template
from services.router.fleet import FleetView
from services.router.places import Places
from services.router.probe import Prober
from services.router.registry import Registry
from services.router.roster import Roster
from tests.contract.router.gateway import MODEL, Gateway, running
from tests.fakes.worker import FakeWorker

LIMITS = RouterLimits(discover_interval_s=0.02, max_workers=3)


class Scripted:
    """A source that says what it is given. It is deaf to its first cancellations, as some libraries are."""

    title = "the test"

    def __init__(self, deaf: int = 0) -> None:
        self._said: asyncio.Queue[Sighting | Exception] = asyncio.Queue()
        self._deaf = deaf

    async def says(self, sighting: Sighting | Exception) -> None:
        """Say it, and wait until it was heard."""
        self._said.put_nowait(sighting)
        await self._said.join()

    async def sightings(self) -> AsyncGenerator[Sighting, None]:
        while True:
            try:
                said = await self._said.get()
            except asyncio.CancelledError:
                if not self._deaf:
                    raise
                self._deaf -= 1
                continue
            try:
                if isinstance(said, Exception):
                    raise said
                yield said
            finally:
                self._said.task_done()


def template() -> Template:
    return Template(
        {
            "worker_id": "found", "runtime": "openai-compatible", "runtime_endpoint": "http://workers/v1",
            "supported_models": [MODEL], "runtime_config": {"transport": "openai", "check": "metadata"},
        },
        finds_ports=True,
    )  # fmt: skip


@asynccontextmanager
async def finding(source: Scripted) -> AsyncIterator[Registry]:
    """A finder with that one source, and the registry that it fills."""
    registry = Registry()
    chance = Random(7)
    fleet, places = FleetView(registry, "r"), Places(registry, chance, LIMITS)
    roster = Roster(registry, fleet, places, Prober(LIMITS, chance), LIMITS)
    finder = Finder(roster, [(template(), source)], LIMITS)
    starting = asyncio.ensure_future(finder.start())
    try:
        await source.says(frozenset())
        await starting
        yield registry
    finally:
        await finder.close()
        fleet.close()
        await roster.close()


def served(registry: Registry) -> dict[str, str]:
    return {worker.worker_id: worker.registration.endpoint for worker in registry}


async def test_a_worker_is_called_by_its_name_or_by_address_and_port() -> None:
    source = Scripted()
    async with finding(source) as registry:
        long = "x" * 200
        await source.says(frozenset({Found("127.0.0.1", 1, "pod-a"), Found("::1", 2), Found("127.0.0.1", 3, long)}))
        assert served(registry) == {
            "found-pod-a": "http://127.0.0.1:1/v1",
            "found-::1-2": "http://[::1]:2/v1",
            "found-127.0.0.1-3": "http://127.0.0.1:3/v1",
        }


async def test_one_that_moved_is_a_new_worker_under_its_id() -> None:
    source = Scripted()
    async with finding(source) as registry:
        await source.says(frozenset({Found("127.0.0.1", 1, "a")}))
        before = registry.get("found-a")
        await source.says(frozenset({Found("127.0.0.1", 1, "a")}))
        assert registry.get("found-a") is before
        await source.says(frozenset({Found("127.0.0.2", 1, "a")}))
        assert served(registry) == {"found-a": "http://127.0.0.2:1/v1"}
        assert before is not None
        assert before.retired
        # To where no worker may be: the old address is not said any more.
        await source.says(frozenset({Found("169.254.169.254", 1, "a")}))
        assert served(registry) == {}


async def test_a_source_that_does_not_know_or_breaks_changes_nothing() -> None:
    source = Scripted()
    async with finding(source) as registry:
        there = frozenset({Found("127.0.0.1", 1, "a")})
        await source.says(there)
        before = registry.get("found-a")
        await source.says(Unseen("the test has it so"))
        await source.says(RuntimeError("a bug"))
        await source.says(there)
        assert before is not None
        assert registry.get("found-a") is before


async def test_there_are_no_more_workers_than_there_may_be_and_who_waits_comes_in_when_one_goes() -> None:
    source = Scripted()
    async with finding(source) as registry:
        await source.says(frozenset(Found("127.0.0.1", port, f"w{port}") for port in range(1, 6)))
        assert list(served(registry)) == ["found-w1", "found-w2", "found-w3"]
        await source.says(frozenset(Found("127.0.0.1", port, f"w{port}") for port in range(2, 6)))
        assert list(served(registry)) == ["found-w2", "found-w3", "found-w4"]


async def test_close_ends_a_source_that_is_deaf_to_being_cancelled() -> None:
    source = Scripted(deaf=3)
    async with asyncio.timeout(10):
        async with finding(source):
            pass


async def test_what_operators_registered_is_never_replaced(tmp_path: Path, worker: FakeWorker) -> None:
    async with running(tmp_path) as gateway:
        await gateway.register(worker.url, "found-a")
        source = Scripted()
        finder = Finder(gateway.router._roster, [(template(), source)], LIMITS)
        starting = asyncio.ensure_future(finder.start())
        try:
            await source.says(frozenset({Found("127.0.0.9", 1, "a")}))
            await starting
            assert endpoint_of(gateway, "found-a") == worker.url
            # Nor is it taken out when the source says that it is gone.
            await source.says(frozenset())
            assert endpoint_of(gateway, "found-a") == worker.url
        finally:
            await finder.close()


def endpoint_of(gateway: Gateway, worker_id: str) -> str:
    endpoint: str = gateway.worker(worker_id).registration.endpoint
    return endpoint
