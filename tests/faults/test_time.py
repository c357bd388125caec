"""Groups D and R where they take time or several workers: what no deadline may cut, departures, loads; with the charge."""

import asyncio
import itertools
from collections.abc import Iterable, Iterator

import pytest

from tests.fakes import scripts
from tests.fakes.scenario import Answered, Failed, Scenario
from tests.fakes.scripts import Hang, Pause, Received, Reset, Step
from tests.harness.raw_client import RawCall
from tests.harness.reservations import reservations
from tests.harness.stage import COMPLETION_PRICE, PROMPT_PRICE, WORKER_ID, Customer, Stage
from tests.harness.until import until, until_async

NAME = "timed"
MODEL = "acme/timed"
WORKERS = ("timed-1", "timed-2")
HELLO = scripts.delta(NAME, content="Hello")
ROLE = scripts.delta(NAME, role="assistant", content="")
FINISH = scripts.delta(NAME, finish_reason="stop")
COUNTS = scripts.frame(NAME, choices=[], usage=scripts.usage(12, 1))
LEFT = Failed("client_left")
# Longer than the deadlines below, and each gap far shorter.
GAPS, GAP_S, DEADLINE_S = 13, 0.1, 1.0


def _apart(parts: Iterable[bytes]) -> list[Step]:
    return [step for part in parts for step in (part, Pause(GAP_S))]


def _bytes_of(event: bytes) -> list[bytes]:
    """An event's line in pieces, each a chunk of its own."""
    line = event.split(b"\r\n", 1)[1].removesuffix(b"\r\n")
    cut = len(line) // GAPS + 1
    return [scripts.chunk(line[at : at + cut]) for at in range(0, len(line), cut)]


STEADY: dict[str, list[Step]] = {
    "words": [*_apart([scripts.event(HELLO)] * GAPS)],
    "comments": [scripts.event(HELLO), *_apart([scripts.chunk(b": ping\n\n")] * GAPS)],
    "pieces of a word": [scripts.event(HELLO), *_apart(_bytes_of(scripts.event(HELLO)))],
}


@pytest.mark.parametrize("kind", STEADY)
async def test_d6_whatever_comes_keeps_the_idle_deadline_off(kind: str, stage: Stage, customer: Customer) -> None:
    words = {"words": GAPS, "comments": 1, "pieces of a word": 2}[kind]
    script: list[Step] = [scripts.SSE_HEAD, *STEADY[kind], *scripts.stream(FINISH, COUNTS)[1:]]
    config = {"idle_timeout_s": DEADLINE_S, "first_token_timeout_s": DEADLINE_S}
    scenario = Scenario(NAME, ("D5", "D6"), script, Answered("Hello" * words, 12, 1), config=config)
    stage.play(scenario)
    seen = await stage.ask(customer, scenario)
    assert seen.done, seen.payloads
    assert seen.content == "Hello" * words
    stage.assert_charged(customer, scenario)


async def test_d6_a_worker_that_hangs_stops_no_other_request(stage: Stage, customer: Customer) -> None:
    plays: Iterator[list[Step]] = itertools.chain(
        [[Hang()]] * 5, itertools.repeat(scripts.stream(HELLO, FINISH, COUNTS))
    )
    scenario = Scenario(NAME, ("D6",), lambda _: next(plays), Answered("Hello", 12, 1))
    stage.play(scenario)
    hung = [asyncio.create_task(stage.ask(customer, scenario)) for _ in range(5)]
    await until_async(lambda: len(stage.received()) == 5, "five hang")
    for _ in range(5):
        assert (await stage.ask(customer, scenario)).done
    for each in hung:
        each.cancel()
    await asyncio.gather(*hung, return_exceptions=True)
    stage.product.settled(customer.account_id)
    states = sorted(held.state for held in reservations(stage.product, customer.account_id))
    assert states == ["released"] * 5 + ["settled"] * 5


async def test_d3_the_total_deadline_after_content_is_charged_as_far_as_it_is_known(
    stage: Stage, customer: Customer
) -> None:
    counted = HELLO | {"usage": scripts.usage(12, 1)}
    scenario = Scenario(
        NAME,
        ("D3",),
        scripts.stream(counted, *[step for _ in range(99) for step in (Pause(0.05), scripts.event(ROLE))]),
        Answered("Hello", 12, 1),
        config={"total_timeout_s": 0.4},
    )
    stage.play(scenario)
    seen = await stage.ask(customer, scenario)
    assert (seen.status, seen.content, seen.done) == (200, "Hello", False)
    assert seen.error is not None
    assert seen.error["code"] == "upstream_timeout"
    assert "total deadline" in seen.error["message"]
    stage.assert_charged(customer, scenario)
    await until_async(lambda: stage.received()[0].disconnected.is_set(), "the worker is dropped")


@pytest.fixture(scope="module")
def priced(stage: Stage) -> Stage:
    stage.product.price(MODEL, PROMPT_PRICE, COMPLETION_PRICE)
    return stage


def two_in_turn(first: list[Step], second: list[Step]) -> Scenario:
    """Whichever worker is asked first plays the first part."""
    left: Iterator[list[Step]] = iter((first, second))

    def script(_request: Received) -> list[Step]:
        return next(left)

    return Scenario(NAME, ("D1",), script, LEFT, config={"first_token_timeout_s": 60})


@pytest.mark.parametrize("stream", [True, False])
async def test_d1_a_client_that_leaves_during_the_second_attempt_frees_both(
    stream: bool, priced: Stage, customer: Customer
) -> None:
    scenario = two_in_turn([scripts.json_answer({}, 500)], [Hang()])
    priced.play(scenario, model=MODEL, worker_ids=WORKERS)
    asking = asyncio.create_task(priced.ask(customer, scenario, model=MODEL, stream=stream))
    await until_async(lambda: len(priced.received()) == 2, "the second attempt is made")
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await until_async(lambda: priced.received()[1].disconnected.is_set(), "the second worker is dropped")
    await until_async(lambda: not any(priced.product.worker(each)["in_flight"] for each in WORKERS), "both are free")
    priced.assert_charged(customer, scenario)


async def test_r3_four_hundred_calls_that_are_given_up_leave_no_load_and_no_hold(
    stage: Stage, customer: Customer
) -> None:
    plays = itertools.cycle([[Hang()], scripts.stream(ROLE, Hang()), [scripts.SSE_HEAD, Hang()]])
    scenario = Scenario(NAME, ("R3",), lambda asked: next(plays) if asked.json.get("stream") else [Hang()], LEFT)
    stage.play(scenario)
    body = stage.body(scenario)
    host, port = stage.product.address("edge").split(":")

    async def give_up(number: int, others: asyncio.Event) -> None:
        async with RawCall(host, int(port), customer.key, body | {"stream": bool(number % 3)}):
            if number % 4:
                await others.wait()

    for first in range(0, 400, 50):
        there = asyncio.Event()
        # Most leave when they are at the worker, some at once.
        leaving = [asyncio.create_task(give_up(number, there)) for number in range(first, first + 50)]
        staying = len([number for number in range(first + 50) if number % 4])
        await until_async(lambda staying=staying: len(stage.received()) >= staying, "they run")  # type: ignore[misc]
        there.set()
        await asyncio.gather(*leaving)
    await until_async(lambda: stage.product.worker(WORKER_ID)["in_flight"] == 0, "nothing runs")
    stage.assert_charged(customer, scenario)
    assert stage.product.worker(WORKER_ID)["circuit"] == "closed"


async def test_r3_a_worker_that_is_registered_anew_keeps_its_load(stage: Stage, customer: Customer) -> None:
    scenario = Scenario(NAME, ("R3", "R4"), [Hang()], LEFT)
    stage.play(scenario)
    asking = asyncio.create_task(stage.ask(customer, scenario, stream=False))
    await until_async(lambda: len(stage.received()) == 1, "it runs")
    running = stage.received()[0]
    stage.play(scenario)
    assert stage.product.worker(WORKER_ID)["in_flight"] == 1
    assert not running.disconnected.is_set()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    until(lambda: stage.product.worker(WORKER_ID)["in_flight"] == 0, "its load is given back")
    stage.assert_charged(customer, scenario)


async def test_d8_a_worker_that_closes_kept_connections_loses_no_call(stage: Stage, customer: Customer) -> None:
    """Each kept connection is reset when the next request comes on it, as by a keep-alive that ends just then."""
    used: set[str] = set()
    good = scripts.stream(HELLO, FINISH, COUNTS)

    def script(request: Received) -> list[Step]:
        name = request.headers["x-request-id"]
        again = name in used
        used.add(name)
        return good if again or len(used) % 2 else [Reset()]

    scenario = Scenario(NAME, ("D8",), script, Answered("Hello", 12, 1))
    stage.play(scenario)
    for _ in range(12):
        assert (await stage.ask(customer, scenario)).done
    assert stage.product.worker(WORKER_ID)["circuit"] == "closed"
    stage.assert_charged(customer, scenario, times=12)
