"""A router that stands still: it gets nothing new, and what it has answered nothing of goes on elsewhere, once."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from speedinfer.router.v1.fleet_pb2 import WorkerStatus
from speedinfer.router.v1.frame_pb2 import Frame
from speedinfer.router.v1.inference_pb2 import GenerateItem, HoldPlaceRequest
from speedinfer.router.v1.relay_pb2 import RelayRequest, RelayResponse

from services.edge.silence import WAIT_S
from services.router.relay_servicer import RelayServicer
from tests.fakes.scripted_router import WORKER, ScriptedRouter, Scripts, accepted, data, end, worker
from tests.unit.edge.conftest import Fleet, Stand, eventually, known

HELLO = b'{"choices":[{"index":0,"delta":{"content":"Hello"}}]}'
TIMEOUT_S = 60.0


class WithPlaces(Scripts):
    """Gives everybody a place."""

    def __init__(self, router: "Stoppable") -> None:
        super().__init__(router)
        self.asked: list[HoldPlaceRequest] = []

    async def place(self, request: HoldPlaceRequest) -> Any:
        self.asked.append(request)
        return SimpleNamespace(worker=worker(), over=asyncio.Event())


class StoppableRelay(RelayServicer):
    """The router's own relay, whose process stands still while `runs` is clear: nothing is read, nothing is said."""

    def __init__(self, router: "Stoppable", *, knows_pings: bool) -> None:
        self.places = WithPlaces(router)
        super().__init__(router.router_id, self.places, router.metrics)
        self.runs = asyncio.Event()
        self.runs.set()
        self.pings = 0
        self._knows_pings = knows_pings

    async def Relay(
        self, request_iterator: AsyncIterator[RelayRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[RelayResponse]:
        async with aclosing(super().Relay(self._read(request_iterator), context)) as messages:  # type: ignore[type-var]
            async for message in messages:
                await self.runs.wait()
                if not self._knows_pings:
                    # As a router does whose protocol has no such field.
                    message.ClearField("pong")
                    message.hello.ClearField("answers_pings")
                yield message

    async def _read(self, requests: AsyncIterator[RelayRequest]) -> AsyncIterator[RelayRequest]:
        async for request in requests:
            await self.runs.wait()
            self.pings += request.ping
            yield request


class Stoppable(ScriptedRouter):
    """Answers with its own name once `go` is set; before, it has said what `before` says."""

    def __init__(self, router_id: str, before: tuple[Frame, ...] = (), *, knows_pings: bool = True) -> None:
        super().__init__(router_id)
        self.relay: StoppableRelay = StoppableRelay(self, knows_pings=knows_pings)
        self.go = asyncio.Event()
        self.go.set()
        self._before = before
        self.script = self._answer

    def stop_still(self) -> None:
        self.relay.runs.clear()

    def wake(self) -> None:
        self.relay.runs.set()

    async def _answer(self, item: GenerateItem) -> AsyncIterator[Frame]:
        for frame in self._before:
            yield frame
        await self.go.wait()
        yield accepted(self.router_id, max(item.context.attempt, 1))
        yield data(b'{"choices":[{"index":0,"delta":{"content":"%b"}}]}' % self.router_id.encode())
        yield end()


Asking = asyncio.Task[Any]


@pytest.fixture
async def asking() -> AsyncIterator[list[Asking]]:
    """Requests that wait; each must have its answer in the test."""
    tasks: list[Asking] = []
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def ask(stand: Stand, asking: list[Asking], **changes: Any) -> Asking:
    asking.append(asyncio.ensure_future(stand.post(stand.body(stream=True, **changes))))
    return asking[-1]


def hold_up_the_loop(for_s: float) -> None:
    time.sleep(for_s)


async def until_silent(stand: Stand, count: int = 1) -> None:
    await eventually(lambda: stand.metric("routers_silent") == count)


async def answered_by(asked: Asking) -> str:
    answer = await asked
    assert answer.status == 200, answer.body
    assert answer.events[-1] == "[DONE]", answer.body
    return next(name for name in ("one", "two", "three", "old") if f'"content":"{name}"' in answer.events[-3])


def charges(stand: Stand) -> list[str]:
    """What became of the holds."""
    return sorted(name for name in stand.billing.names() if name in ("reserve", "settle", "release"))


async def test_what_a_silent_router_has_not_answered_goes_on_elsewhere_and_is_charged_once(
    fleet: Fleet, asking: list[Asking], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = Stoppable("one"), Stoppable("two")
    stand = await fleet(one, two, request_timeout_s=TIMEOUT_S)
    one.stop_still()
    assert await answered_by(ask(stand, asking)) == "two"
    assert stand.metric("routers_silent") == 1
    assert stand.metric("router_moves_total") == 1
    (moved,) = two.items
    assert moved.context.attempt == 2
    # It took a second to find out, of the same deadline.
    assert 0 < moved.context.remaining_ms < (TIMEOUT_S - 0.9) * 1000
    for _ in range(3):
        assert await answered_by(ask(stand, asking)) == "two"
    assert stand.metric("router_moves_total") == 1, "new requests went to the other one at once"
    assert known(stand)[0].open == 0
    one.wake()
    await until_silent(stand, 0)
    # It reads the request, and behind it that nobody wants it.
    await eventually(lambda: not any(map(len, one.relay._sessions)))
    assert {await answered_by(ask(stand, asking)) for _ in range(4)} == {"one", "two"}
    assert charges(stand) == ["reserve"] * 8 + ["settle"] * 8
    said = ""

    def look() -> bool:
        nonlocal said
        said += capsys.readouterr().out
        return "router_heard_again" in said

    await eventually(look)
    assert said.count("router_silent") == 1


async def test_that_a_worker_has_begun_was_shown_to_nobody(fleet: Fleet, asking: list[Asking]) -> None:
    one, two = Stoppable("one", (accepted(WORKER, 3),)), Stoppable("two")
    one.go.clear()
    stand = await fleet(one, two)
    asked = ask(stand, asking)
    await eventually(lambda: any(each.worker_id == WORKER for each in stand.edge._inference._streams))
    one.stop_still()
    answer = await asked
    assert (answer.events[-1], stand.metric("router_moves_total")) == ("[DONE]", 1)
    assert two.items[0].context.attempt == 4, "the silent router had made three"
    assert charges(stand) == ["reserve", "settle"]


async def test_a_router_that_thinks_long_and_answers_pings_keeps_what_it_has(
    fleet: Fleet, asking: list[Asking]
) -> None:
    one, two = Stoppable("one"), Stoppable("two")
    one.go.clear()
    stand = await fleet(one, two)
    asked = ask(stand, asking)
    await eventually(lambda: one.items)
    before = one.relay.pings
    await eventually(lambda: one.relay.pings >= before + 5)
    assert stand.metric("routers_silent") == 0
    one.go.set()
    assert await answered_by(asked) == "one"
    assert (len(two.items), stand.metric("router_moves_total")) == (0, 0)


async def test_with_one_router_nothing_is_given_up(fleet: Fleet, asking: list[Asking]) -> None:
    one = Stoppable("one")
    stand = await fleet(one)
    one.stop_still()
    early = ask(stand, asking)
    await until_silent(stand)
    late = ask(stand, asking)
    await eventually(lambda: known(stand)[0].open == 2)
    one.wake()
    assert [await answered_by(early), await answered_by(late)] == ["one", "one"]
    assert stand.metric("router_moves_total") == 0
    assert charges(stand) == ["reserve"] * 2 + ["settle"] * 2


@pytest.mark.parametrize("why", ["it does not know the model", "its workers are down"])
async def test_nothing_goes_to_a_router_that_cannot_serve_it(fleet: Fleet, asking: list[Asking], why: str) -> None:
    one, two = Stoppable("one"), Stoppable("two")
    two.workers = [] if "know" in why else [worker(status=WorkerStatus.WORKER_STATUS_UNHEALTHY)]
    stand = await fleet(one, two)
    one.stop_still()
    asked = ask(stand, asking)
    await until_silent(stand)
    assert stand.metric("router_moves_total") == 0
    # Once it can, it does.
    two.change([worker()], tell=True)
    assert await answered_by(asked) == "two"
    one.wake()


async def test_what_was_answered_in_part_stays_and_goes_on_with_its_router(fleet: Fleet, asking: list[Asking]) -> None:
    one, two = Stoppable("one", (accepted(), data(HELLO))), Stoppable("two")
    one.go.clear()
    stand = await fleet(one, two)
    reader, writer = await stand.open_raw(stand.body(stream=True))
    await reader.readuntil(b"Hello")
    one.stop_still()
    await until_silent(stand)
    assert await answered_by(ask(stand, asking)) == "two"
    one.go.set()
    one.wake()
    rest = await reader.readuntil(b"0\r\n\r\n")
    assert b"[DONE]" in rest
    assert b'"one"' in rest
    writer.close()
    await writer.wait_closed()
    assert stand.metric("router_moves_total") == 0
    assert charges(stand) == ["reserve"] * 2 + ["settle"] * 2


async def test_a_wait_for_a_place_goes_on_too_and_the_request_follows_it(fleet: Fleet, asking: list[Asking]) -> None:
    one, two = Stoppable("one"), Stoppable("two")
    for router in (one, two):
        router.workers[0].max_concurrency = 4
    stand = await fleet(one, two)
    one.stop_still()
    assert await answered_by(ask(stand, asking)) == "two"
    assert stand.metric("router_moves_total") == 1
    (waited,) = two.relay.places.asked
    assert two.items[0].place_request_id == waited.context.request_id
    assert charges(stand) == ["reserve", "settle"]
    one.wake()


async def test_a_large_request_on_a_call_of_its_own_goes_on_too(fleet: Fleet, asking: list[Asking]) -> None:
    one, two = Stoppable("one"), Stoppable("two")
    one.go.clear()
    stand = await fleet(one, two)
    asked = ask(stand, asking, messages=[{"role": "user", "content": "z" * 400_000}])
    await eventually(lambda: one.items)
    one.stop_still()
    assert await answered_by(asked) == "two"
    await one.cancelled.wait()
    assert charges(stand) == ["reserve", "settle"]
    one.wake()


async def test_a_request_moves_twice_and_then_stays(fleet: Fleet, asking: list[Asking]) -> None:
    routers = one, two, three = Stoppable("one"), Stoppable("two"), Stoppable("three")
    for router in routers:
        router.go.clear()
    stand = await fleet(*routers)
    one.stop_still()
    asked = ask(stand, asking)
    second = await eventually(lambda: next((each for each in (two, three) if each.items), None))
    second.stop_still()
    third = three if second is two else two
    await eventually(lambda: third.items)
    one.wake()
    await until_silent(stand, 1)
    third.stop_still()
    await until_silent(stand, 2)
    assert stand.metric("router_moves_total") == 2
    for router in routers:
        router.go.set()
        router.wake()
    assert await answered_by(asked) == third.router_id
    assert charges(stand) == ["reserve", "settle"]


async def test_a_router_that_knows_no_pings_is_never_silent(fleet: Fleet, asking: list[Asking]) -> None:
    old, two = Stoppable("old", knows_pings=False), Stoppable("two")
    stand = await fleet(old, two)
    old.stop_still()
    asked = ask(stand, asking)
    await eventually(lambda: two.relay.pings >= 5)
    assert (stand.metric("routers_silent"), stand.metric("router_moves_total")) == (0, 0)
    old.wake()
    assert await answered_by(asked) == "old"
    assert old.relay.pings == 0, "nor is it asked"


async def test_an_edge_that_was_held_up_itself_takes_nobody_for_silent(
    fleet: Fleet, asking: list[Asking], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = Stoppable("one"), Stoppable("two")
    one.go.clear()
    stand = await fleet(one, two)
    asked = ask(stand, asking)
    await eventually(lambda: one.items)
    one.stop_still()
    (link,) = known(stand)[0]._links
    await eventually(lambda: link._silence is not None and link._silence._asked_s is not None)
    # The answer is on its way, and more than its time passes before it can be read.
    one.wake()
    hold_up_the_loop(3 * WAIT_S)
    before = one.relay.pings
    await eventually(lambda: one.relay.pings > before)
    one.go.set()
    assert await answered_by(asked) == "one"
    assert "router_silent" not in capsys.readouterr().out
    assert stand.metric("router_moves_total") == 0


async def test_a_no_is_asked_only_of_routers_that_are_heard(fleet: Fleet) -> None:
    one, two = Stoppable("one"), Stoppable("two")
    stand = await fleet(one, two)
    one.stop_still()
    await until_silent(stand)
    one.workers = [worker("known-to-one-alone")]
    one.version += 1
    shown = (await stand.get("/health")).json["workers"]
    assert [each["worker_id"] for each in shown] == [WORKER]
    one.wake()
