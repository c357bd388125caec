"""`speedinfer edge --workers N`: several processes at one address are one edge to clients, operators and successors."""

import asyncio
import os
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest

from services.cli import readiness
from tests.blackbox.conftest import Customer, PreparedProduct, customer_of
from tests.blackbox.test_kill import BODY, everything_adds_up
from tests.harness import http_client
from tests.harness.load import Load
from tests.harness.ports import free_port
from tests.harness.sse import stream
from tests.harness.until import until, until_async
from tests.harness.upstream import Script, Upstream

PATH = "/v1/chat/completions"
CLIENTS = 8
WORKERS = 3
STREAMS = 12
QUICK = Script(pieces=tuple("abcdefghij"), prompt_tokens=12, completion_tokens=10, gap_s=0.005)


class CrewProduct(PreparedProduct):
    """Its edge has several processes."""

    def __init__(self, folder: Path, upstream: Upstream) -> None:
        super().__init__(folder, upstream, {})
        self.workers = WORKERS
        # Operators' listeners follow one another.
        self.ports["admin"] = free_port(WORKERS - 1)
        self.environment["SPEEDINFER_EDGE__ADMIN_LISTEN"] = self.address("admin")

    def environment_of(self, _name: str) -> dict[str, str]:
        """See Product."""
        return {**self.environment, "SPEEDINFER_EDGE__WORKERS": str(self.workers)}

    def _is_ready(self, name: str) -> bool:
        if name != "edge":
            return super()._is_ready(name)
        # Each of them: the one address answers as soon as one of them does.
        admins = (f"127.0.0.1:{self.ports['admin'] + index}" for index in range(self.workers))
        return super()._is_ready(name) and all(readiness.edge_lives(each).ready for each in admins)

    def members(self) -> list[psutil.Process]:
        """The processes that serve, in their order."""
        children = psutil.Process(self.pid("edge")).children()
        return sorted(children, key=lambda each: next(word for word in each.cmdline() if word.startswith("--member")))

    def connections(self, member: psutil.Process) -> int:
        """How many clients one of them serves."""
        return sum(
            each.status == psutil.CONN_ESTABLISHED and each.laddr.port == self.ports["edge"]
            for each in member.net_connections("tcp")
        )

    def served(self, index: int) -> float:
        """How many requests one of them has answered."""
        url = f"http://127.0.0.1:{self.ports['admin'] + index}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        told = [line for line in lines if line.startswith("speedinfer_edge_requests_total") and "chat" in line]
        return sum(float(line.rpartition(" ")[2]) for line in told)


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory, served_by: Upstream) -> Iterator[CrewProduct]:
    """A product whose edge is three processes."""
    with CrewProduct(tmp_path_factory.mktemp("crew"), served_by) as product:
        yield product


async def once(customer: Customer) -> int:
    """A request on a connection of its own; its status."""
    async with http_client.plain(base_url=customer.product.url, headers=customer.http.headers, timeout=60) as http:
        return (await http.post(PATH, json=BODY)).status_code


async def test_all_processes_serve_at_the_one_address(crew: CrewProduct, upstream: Upstream) -> None:
    upstream.plays(QUICK)
    assert len(crew.members()) == WORKERS
    async with customer_of(crew, crew.account("10")) as customer:
        asked = 0
        # Who takes a connection is chance: asked until each has had one.
        while not all([await asyncio.to_thread(crew.served, index) for index in range(WORKERS)]):
            asked += 4 * WORKERS
            assert asked < 1_000
            assert set(await asyncio.gather(*(once(customer) for _ in range(4 * WORKERS)))) == {200}
        assert sum([await asyncio.to_thread(crew.served, index) for index in range(WORKERS)]) == asked
        await asyncio.to_thread(crew.settled, customer.account_id)
        assert len(crew.entries(customer.account_id)) == 1 + asked


async def test_one_that_is_killed_takes_only_its_own_and_comes_back(crew: CrewProduct, upstream: Upstream) -> None:
    upstream.plays(Script(held_back=True))
    async with customer_of(crew, crew.account("10")) as customer:
        async with AsyncExitStack() as connections:
            clients = [
                await connections.enter_async_context(
                    http_client.plain(base_url=crew.url, headers=customer.http.headers, timeout=60)
                )
                for _ in range(STREAMS)
            ]
            asking = [asyncio.create_task(stream(http, PATH, BODY | {"stream": True})) for http in clients]
            await until_async(lambda: upstream.seen.at_once == STREAMS, "all are at the worker")
            before = crew.members()
            victim = max(before, key=crew.connections)
            # Who took a connection was chance: one may even have them all.
            lost = crew.connections(victim)
            victim.send_signal(signal.SIGKILL)
            await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            upstream.go()
            ends = await asyncio.gather(*asking, return_exceptions=True)
        whole = [each for each in ends if not isinstance(each, BaseException) and each.done]
        assert 0 < lost == STREAMS - len(whole)
        await until_async(lambda: len(crew.members()) == WORKERS and victim not in crew.members(), "another is there")
        upstream.plays(QUICK)
        assert {await once(customer) for _ in range(6)} == {200}
        assert len(crew.entries(customer.account_id)) == 1 + len(whole) + 6


async def test_a_crew_succeeds_and_is_succeeded_under_load(crew: CrewProduct, upstream: Upstream) -> None:
    upstream.plays(QUICK)
    async with customer_of(crew, crew.account("10")) as customer:
        async with Load(customer.http, BODY, CLIENTS) as load:
            former = []
            # By a smaller crew, by an edge alone, by a crew again.
            for crew.workers in (2, 1, WORKERS):
                await load.acknowledged(20)
                former += [*crew.members(), await asyncio.to_thread(crew.succeed, "edge")]
            await load.acknowledged(20)
        assert load.tally.failed == 0, crew.tail("edge")
        await asyncio.to_thread(everything_adds_up, customer, load, 0)
    assert len(crew.members()) == WORKERS
    await until_async(lambda: not any(map(_runs, former)), "all that were succeeded have ended")


def test_a_signal_drains_all(crew: CrewProduct) -> None:
    members = crew.members()
    assert crew.stop("edge") == 0, crew.tail("edge")
    until(lambda: not any(map(_runs, members)), "they have ended")
    crew.start("edge")


def test_without_its_keeper_each_drains_by_itself(crew: CrewProduct) -> None:
    members = crew.members()
    os.kill(crew.pid("edge"), signal.SIGKILL)
    until(lambda: not any(map(_runs, members)), "they have ended")


def _runs(process: object) -> bool:
    if isinstance(process, psutil.Process):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return process.poll() is None  # type: ignore[attr-defined,no-any-return]
