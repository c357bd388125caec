"""Calls that share messages: their order and bounds, and that each item fares as if it were alone."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from speedinfer.billing.v1.reservation_pb2 import RenewItem

from services.edge import batching
from services.edge.batching import Batching
from services.edge.billing_errors import BillingUnavailable, NotSent, QueueFull

Fault = Callable[[list[str]], Exception | None]


def status(code: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(grpc.StatusCode[code], grpc.aio.Metadata(), grpc.aio.Metadata())


class Line:
    """Notes what is sent. While `open` is clear there is no answer; `fault` says what a message comes to instead of one."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.timeouts_s: list[float] = []
        self.under_way = 0
        self.open = asyncio.Event()
        self.open.set()
        self.fault: Fault = lambda _names: None

    async def send(self, items: list[RenewItem], timeout_s: float) -> list[str]:
        names = [item.reservation_id for item in items]
        self.sent.append(names)
        self.timeouts_s.append(timeout_s)
        self.under_way += 1
        assert self.under_way == 1, "one message at a time"
        try:
            await self.open.wait()
        finally:
            self.under_way -= 1
        if (error := self.fault(names)) is not None:
            raise error
        return [f"done {name}" for name in names]


class Calls:
    """A batching, and callers of it."""

    def __init__(self, line: Line, **bounds: int) -> None:
        self.line = line
        self.batching: Batching[RenewItem, str] = Batching("test", line.send, **bounds)

    def ask(self, name: str, timeout_s: float = 60) -> "asyncio.Task[str]":
        return asyncio.create_task(self.batching.ask(RenewItem(reservation_id=name), timeout_s))

    def ask_all(self, names: str) -> list["asyncio.Task[str]"]:
        return [self.ask(name) for name in names]

    async def until_sent(self, messages: int) -> None:
        async with asyncio.timeout(10):
            while len(self.line.sent) < messages:
                await asyncio.sleep(0)

    async def until_waiting(self, items: int) -> None:
        async with asyncio.timeout(10):
            while len(self.batching) != items:
                await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "_FIRST_PAUSE_S", 0.002)
    monkeypatch.setattr(batching, "_LONGEST_PAUSE_S", 0.004)


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
async def calls(line: Line) -> AsyncIterator[Calls]:
    made = Calls(line)
    yield made
    await made.batching.close()


async def outcomes(tasks: list["asyncio.Task[str]"]) -> list[str]:
    """What each caller got: a result, or the name of the error."""
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    return [answer if isinstance(answer, str) else type(answer).__name__ for answer in answers]


def done(names: str) -> list[str]:
    return [f"done {name}" for name in names]


async def test_who_asks_in_the_same_turn_shares_a_message_and_one_alone_goes_at_once(line: Line, calls: Calls) -> None:
    assert await outcomes(calls.ask_all("abc")) == done("abc")
    assert await outcomes(calls.ask_all("d")) == done("d")
    assert line.sent == [["a", "b", "c"], ["d"]]


async def test_what_comes_meanwhile_goes_in_the_next_message_in_its_order(line: Line, calls: Calls) -> None:
    line.open.clear()
    tasks = calls.ask_all("a")
    await calls.until_sent(1)
    for name in "bcd":
        tasks.append(calls.ask(name))
        await calls.until_waiting(len(tasks) - 1)
    assert line.sent == [["a"]]
    line.open.set()
    assert await outcomes(tasks) == done("abcd")
    assert line.sent == [["a"], ["b", "c", "d"]]


async def test_a_message_is_bounded_in_items_and_in_bytes(line: Line) -> None:
    by_items = Calls(line, max_items=3)
    assert await outcomes(by_items.ask_all("abcdefgh")) == done("abcdefgh")
    assert line.sent == [["a", "b", "c"], ["d", "e", "f"], ["g", "h"]]
    line.sent.clear()
    names = ["x" * 30, "y" * 30, "z" * 500, "w" * 30]
    by_bytes = Calls(line, max_bytes=70)
    assert await outcomes([by_bytes.ask(name) for name in names]) == [f"done {name}" for name in names]
    # What is larger than a message may be goes alone.
    assert line.sent == [names[:2], names[2:3], names[3:]]


@pytest.mark.parametrize("error", [status("INVALID_ARGUMENT"), status("INTERNAL"), ValueError("no text")])
async def test_an_item_that_makes_a_message_fail_fails_alone(line: Line, calls: Calls, error: Exception) -> None:
    line.fault = lambda names: error if "x" in names else None
    answers = await outcomes(calls.ask_all("abcdexfgh"))
    fault = "BillingUnavailable" if "INTERNAL" in str(error) else type(error).__name__
    assert answers == [*done("abcde"), fault, *done("fgh")]
    assert ["x"] in line.sent
    good = [names for names in line.sent if "x" not in names]
    # In their order, and each once.
    assert [name for names in good for name in names] == list("abcdefgh")


async def test_a_message_too_large_goes_in_parts(line: Line, calls: Calls) -> None:
    line.fault = lambda names: status("RESOURCE_EXHAUSTED") if len(names) > 2 else None
    assert await outcomes(calls.ask_all("abcdefgh")) == done("abcdefgh")
    assert ["".join(names) for names in line.sent] == ["abcdefgh", "abcd", "ab", "cd", "efgh", "ef", "gh"]


async def test_each_waits_for_itself_and_the_message_for_the_most_patient(line: Line, calls: Calls) -> None:
    line.open.clear()
    tasks = [calls.ask("a", 60), calls.ask("b", 0.1), calls.ask("c", 30)]
    with pytest.raises(BillingUnavailable) as over:
        await tasks[1]
    # It was on its way: nobody knows what became of it.
    assert not isinstance(over.value, NotSent)
    assert 30 < line.timeouts_s[0] <= 60
    line.open.set()
    assert await outcomes([tasks[0], tasks[2]]) == done("ac")
    assert line.sent == [["a", "b", "c"]]


async def test_what_nobody_waits_for_is_not_sent(line: Line, calls: Calls) -> None:
    line.open.clear()
    first = calls.ask("a")
    await calls.until_sent(1)
    impatient, gone, last = calls.ask("b", 0.01), calls.ask("c"), calls.ask("d")
    await calls.until_waiting(3)
    gone.cancel()
    with pytest.raises(NotSent):
        await impatient
    assert await outcomes([gone]) == ["CancelledError"]
    line.open.set()
    assert await outcomes([first, last]) == done("ad")
    assert line.sent == [["a"], ["d"]]


async def test_who_leaves_takes_nobody_along(line: Line, calls: Calls) -> None:
    line.open.clear()
    tasks = calls.ask_all("abc")
    await calls.until_sent(1)
    tasks[1].cancel()
    assert await outcomes([tasks[1]]) == ["CancelledError"]
    line.open.set()
    assert await outcomes([tasks[0], tasks[2]]) == done("ac")
    assert line.sent == [["a", "b", "c"]]


async def test_who_has_left_is_not_in_what_goes_again(line: Line, calls: Calls) -> None:
    line.fault = lambda names: status("INTERNAL") if len(names) > 2 else None
    line.open.clear()
    tasks = calls.ask_all("abcd")
    await calls.until_sent(1)
    tasks[3].cancel()
    assert await outcomes([tasks[3]]) == ["CancelledError"]
    line.open.set()
    assert await outcomes(tasks[:3]) == done("abc")
    assert ["".join(names) for names in line.sent] == ["abcd", "ab", "c"]


async def test_who_has_left_takes_no_room_during_a_pause(line: Line, calls: Calls) -> None:
    line.fault = lambda _names: status("UNAVAILABLE") if len(line.sent) == 1 else None
    line.open.clear()
    tasks = calls.ask_all("ab")
    await calls.until_sent(1)
    tasks[0].cancel()
    assert await outcomes([tasks[0]]) == ["CancelledError"]
    line.open.set()
    await calls.until_waiting(1)
    assert await outcomes([tasks[1]]) == ["done b"]
    assert line.sent == [["a", "b"], ["b"]]


@pytest.mark.parametrize("code", ["UNAVAILABLE", "CANCELLED"])
async def test_what_found_nobody_goes_again_before_what_came_later(line: Line, calls: Calls, code: str) -> None:
    line.fault = lambda _names: status(code) if len(line.sent) < 4 else None
    tasks = calls.ask_all("ab")
    await calls.until_sent(1)
    tasks += calls.ask_all("c")
    assert await outcomes(tasks) == done("abc")
    assert line.sent[0] == ["a", "b"]
    assert line.sent[3] == ["a", "b", "c"]


async def test_nothing_waits_for_an_attempt_that_it_would_not_see(
    line: Line, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "_FIRST_PAUSE_S", 60)
    line.fault = lambda _names: status("UNAVAILABLE")
    async with asyncio.timeout(20):
        assert await outcomes([calls.ask("a", 40)]) == ["BillingUnavailable"]
    assert line.sent == [["a"]]


async def test_who_leaves_during_a_pause_is_not_sent_again(line: Line, calls: Calls) -> None:
    line.fault = lambda names: status("UNAVAILABLE") if "a" in names else None
    tasks = calls.ask_all("ab")
    await calls.until_sent(1)
    await calls.until_waiting(2)
    tasks[0].cancel()
    assert await outcomes(tasks) == ["CancelledError", "done b"]
    assert line.sent == [["a", "b"], ["b"]]


async def test_the_queue_is_bounded_and_those_who_left_take_no_room(line: Line) -> None:
    calls = Calls(line, max_waiting=2)
    line.open.clear()
    tasks = calls.ask_all("a")
    await calls.until_sent(1)
    tasks += calls.ask_all("bc")
    await calls.until_waiting(2)
    assert await outcomes([calls.ask("d")]) == ["QueueFull"]
    assert issubclass(QueueFull, NotSent)
    tasks[1].cancel()
    await calls.until_waiting(1)
    tasks.append(calls.ask("e"))
    await calls.until_waiting(2)
    line.open.set()
    assert await outcomes(tasks) == ["done a", "CancelledError", "done c", "done e"]


async def test_the_end_is_told_to_all_who_wait(line: Line, calls: Calls) -> None:
    line.open.clear()
    tasks = calls.ask_all("a")
    await calls.until_sent(1)
    tasks += calls.ask_all("b")
    await calls.until_waiting(1)
    await calls.batching.close()
    assert await outcomes(tasks) == ["BillingUnavailable", "NotSent"]
    assert line.sent == [["a"]]


async def test_an_answer_with_a_wrong_number_of_results_is_none() -> None:
    async def send(items: list[RenewItem], _timeout_s: float) -> list[Any]:
        return ["only one"]

    short: Batching[RenewItem, str] = Batching("test", send)
    asked = [asyncio.create_task(short.ask(RenewItem(reservation_id=name), 60)) for name in "ab"]
    assert await outcomes(asked) == ["BillingUnavailable"] * 2
