"""SIGSTOP of one of two routers under load: every request is answered and charged once; awake again, it is taken back."""

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.blackbox.conftest import Customer, customer_of
from tests.blackbox.test_kill import BODY, everything_adds_up
from tests.harness.edge_metrics import metric
from tests.harness.load import PATH, Load
from tests.harness.release import unpacked
from tests.harness.sse import stream
from tests.harness.two_routers import FIRST, SECOND, TwoRouters
from tests.harness.until import LOOK_EVERY_S, until_async
from tests.harness.upstream import Script, Upstream

pytestmark = [pytest.mark.processes, pytest.mark.inside]
CLIENTS = 10
STREAMS = 6
QUICK = Script(pieces=tuple("abcdefghij"), prompt_tokens=12, completion_tokens=10, gap_s=0.005)


@pytest.fixture
def two(tmp_path: Path, served_by: Upstream) -> Iterator[TwoRouters]:
    with TwoRouters(tmp_path, served_by) as product:
        yield product


@pytest.fixture
def with_an_old_one(tmp_path: Path, served_by: Upstream) -> Iterator[TwoRouters]:
    """The second router is the last release's."""
    with TwoRouters(tmp_path / "product", served_by, unpacked(tmp_path / "release")) as product:
        yield product


async def both_serve(customer: Customer) -> int:
    """Ask until either router has answered; how often it was."""
    workers: list[str] = []
    async with asyncio.timeout(60):
        while len(set(workers)) < 2:
            answer = await customer.http.post(PATH, json=BODY)
            assert answer.status_code == 200
            workers.append(answer.headers["x-speedinfer-worker"])
            # The edge looks for a router that it does not know yet five times a second.
            await asyncio.sleep(LOOK_EVERY_S)
    return len(workers)


def said(product: TwoRouters, event: str) -> int:
    """How often the edge's log has this of the second router. A machine that is busy enough may silence the first one, too."""
    lines = map(json.loads, product.log("edge").read_text().splitlines())
    return sum(each["event"] == event and each["router"] == product.address(SECOND) for each in lines)


def open_at(product: TwoRouters, name: str) -> float:
    """Requests of the edge that are open at a router."""
    return metric(product, "relay_open", router=product.address(name))


async def test_one_of_two_stands_still_under_streams_and_is_taken_back(two: TwoRouters, upstream: Upstream) -> None:
    async with (
        customer_of(two, two.account("10")) as busy,
        customer_of(two, two.account("10")) as patient,
    ):
        asked_before = await both_serve(patient)
        # Some of these are at each router.
        upstream.plays(Script(pieces=tuple("abcdefgh"), pauses_after=4))
        long = [asyncio.create_task(stream(patient.http, PATH, BODY | {"stream": True})) for _ in range(STREAMS)]
        await until_async(lambda: upstream.seen.at_once == STREAMS, "all are at the worker")
        read_in_part = open_at(two, SECOND)
        assert read_in_part
        upstream.plays(QUICK)
        async with Load(busy.http, BODY, CLIENTS) as load:
            await load.acknowledged(20)
            before = said(two, "router_silent"), said(two, "router_heard_again")
            two.send(SECOND, signal.SIGSTOP)
            await until_async(lambda: said(two, "router_silent") > before[0], "the edge knows that it stands still")
            assert metric(two, "routers_silent") >= 1
            # What was read in part waits; the others go on.
            await load.acknowledged(3 * CLIENTS)
            assert open_at(two, SECOND) >= read_in_part
            assert said(two, "router_heard_again") == before[1]
            two.send(SECOND, signal.SIGCONT)
            await until_async(lambda: said(two, "router_heard_again") > before[1], "it is heard again")
            await load.acknowledged(20)
            await until_async(lambda: read_in_part < open_at(two, SECOND), "it gets requests again")
        assert load.tally.failed == 0, two.tail("edge")
        upstream.go()
        for seen in await asyncio.gather(*long):
            assert seen.done
            assert seen.error is None
        assert metric(two, "router_moves_total") > 0
        await asyncio.to_thread(everything_adds_up, busy, load, 0)
        await asyncio.to_thread(two.settled, patient.account_id)
        assert len(two.entries(patient.account_id)) == 1 + asked_before + STREAMS


async def test_a_router_of_the_last_release_is_not_taken_for_silent(
    with_an_old_one: TwoRouters, upstream: Upstream
) -> None:
    product = with_an_old_one
    async with customer_of(product, product.account("10")) as customer:
        asked_before = await both_serve(customer)
        upstream.plays(Script(held_back=True))
        asked = [asyncio.create_task(stream(customer.http, PATH, BODY | {"stream": True})) for _ in range(STREAMS)]
        await until_async(lambda: upstream.seen.at_once == STREAMS, "all are at the worker")
        assert open_at(product, SECOND)
        product.send(SECOND, signal.SIGSTOP)
        product.send(FIRST, signal.SIGSTOP)
        # The old one has been still for longer; it is there for all that the edge knows, and takes what was at the new one.
        await until_async(lambda: open_at(product, SECOND) == STREAMS, "the new one is silent")
        assert metric(product, "routers_silent") == 1
        for name in (FIRST, SECOND):
            product.send(name, signal.SIGCONT)
        upstream.go()
        for seen in await asyncio.gather(*asked):
            assert seen.done
            assert seen.error is None
        await asyncio.to_thread(product.settled, customer.account_id)
        assert len(product.entries(customer.account_id)) == 1 + asked_before + STREAMS
        assert said(product, "router_silent") == 0
