"""A successor takes a service's place: what passes, in which order, and what happens where one of the two does not go on."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.common import handover
from services.common.errors import ConfigurationError
from services.common.handover import Listeners, Predecessor
from tests.harness.until import until_async

ADDRESS = "127.0.0.1:8080"


class Recorded:
    """A service that only says what it was asked, and shares one listening socket."""

    def __init__(self, listening: socket.socket | None = None, fails: bool = False) -> None:
        self.told: list[str] = []
        self.given: dict[str, list[socket.socket]] = {}
        self._listening = listening
        self._fails = fails
        # It is ready only then.
        self.ready = asyncio.Event()
        self.ready.set()

    async def start(self, predecessor: Predecessor | None = None) -> None:
        self.told.append("start")
        if predecessor is not None:
            self.given = dict(predecessor.listeners)
            predecessor.listeners.clear()
        await self.ready.wait()
        if self._fails:
            raise ConfigurationError("it cannot start")

    def listeners(self) -> Listeners:
        return {f"edge.listen {ADDRESS}": [self._listening.fileno()]} if self._listening is not None else {}

    async def prepare(self) -> None:
        self.told.append("prepare")

    async def resume(self) -> None:
        self.told.append("resume")

    async def leave(self) -> None:
        self.told.append("leave")

    async def linger(self, stop: asyncio.Event) -> None:
        self.told.append("linger")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return handover.place(tmp_path, "edge", ADDRESS)


@asynccontextmanager
async def serving(service: Recorded, place: Path, *, take_over: bool = False) -> AsyncIterator[asyncio.Task[None]]:
    """The service's life in a task, from when its place is offered; stopped at the end."""
    stop = asyncio.Event()
    task = asyncio.create_task(handover.serve(service, place, stop, take_over=take_over))
    await until_async(lambda: task.done() or handover.is_offered(place), "the place is offered")
    try:
        yield task
    finally:
        stop.set()
        await task


async def test_a_successor_gets_the_sockets_and_the_old_one_leaves_when_it_is_ready(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        old, new = Recorded(listening), Recorded()
        async with serving(old, place) as life, serving(new, place, take_over=True):
            await life
            assert old.told == ["start", "prepare", "leave", "linger"]
            assert new.told == ["start"]
            (shared,) = new.given[f"edge.listen {ADDRESS}"]
            with shared:
                assert shared.getsockname() == listening.getsockname()
                assert not shared.get_inheritable()
    assert not place.exists(), "who stops takes its offer back"


async def test_one_that_cannot_start_leaves_the_old_one_as_it_was(place: Path) -> None:
    old, new, third = Recorded(), Recorded(fails=True), Recorded()
    async with serving(old, place):
        with pytest.raises(ConfigurationError, match="cannot start"):
            await handover.serve(new, place, asyncio.Event(), take_over=True)
        await until_async(lambda: old.told == ["start", "prepare", "resume"], "it goes on")
        # And may be succeeded by another.
        async with serving(third, place, take_over=True):
            await until_async(lambda: old.told[3:] == ["prepare", "leave", "linger"], "it is succeeded")


async def test_one_that_is_told_to_stop_before_it_is_ready_takes_nothing(place: Path) -> None:
    old, new = Recorded(), Recorded()
    stop = asyncio.Event()
    stop.set()
    async with serving(old, place):
        await handover.serve(new, place, stop, take_over=True)
        await until_async(lambda: old.told == ["start", "prepare", "resume"], "it goes on")


async def test_an_old_one_that_is_stopped_meanwhile_is_succeeded_all_the_same(place: Path) -> None:
    old, new, stop = Recorded(), Recorded(), asyncio.Event()
    new.ready.clear()
    async with serving(old, place) as life:
        successor = asyncio.create_task(handover.serve(new, place, stop, take_over=True))
        await until_async(lambda: bool(new.told), "the successor begins")
    assert life.done()
    assert old.told == ["start", "prepare", "resume"]
    new.ready.set()
    await until_async(lambda: successor.done() or handover.is_offered(place), "the successor serves")
    stop.set()
    await successor


async def test_an_old_one_that_waits_no_longer_and_serves_on_is_not_succeeded(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "_READY_WITHIN_S", 0.01)
    monkeypatch.setattr(handover, "_LOOK_EVERY_S", 0.001)
    old, new = Recorded(), Recorded()
    new.ready.clear()
    async with serving(old, place) as life:
        successor = asyncio.create_task(handover.serve(new, place, asyncio.Event(), take_over=True))
        await until_async(lambda: old.told[-1] == "resume", "the old one goes on")
        new.ready.set()
        with pytest.raises(ConfigurationError, match="did not hand its place over"):
            await successor
        assert not life.done()


async def test_with_nobody_there_it_just_starts_and_a_dead_one_s_offer_is_replaced(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place))
    assert not handover.is_offered(place)
    service = Recorded()
    async with serving(service, place, take_over=True):
        assert service.told == ["start"]
        assert place.stat().st_mode & 0o077 == 0, "only its own user may succeed it"


async def test_who_only_looks_changes_nothing(place: Path) -> None:
    service = Recorded()
    async with serving(service, place):
        for _ in range(3):
            assert handover.is_offered(place)
    assert service.told == ["start"]


async def test_a_folder_may_lie_deep(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    old, new = Recorded(), Recorded()
    place = handover.place(deep, "edge", ADDRESS)
    async with serving(old, place) as life, serving(new, place, take_over=True):
        await life
        assert old.told[-1] == "linger"


def test_services_of_one_folder_differ_in_their_places(tmp_path: Path) -> None:
    places = {handover.place(tmp_path, *each) for each in [("edge", ADDRESS), ("edge", "[::]:80"), ("router", ADDRESS)]}
    assert len(places) == 3
