"""Rolling restarts: each service is succeeded by another process while clients ask and stream, and nobody notices."""

import asyncio
import subprocess
from collections.abc import Iterator

import httpx
import pytest

from tests.blackbox.conftest import Customer, customer_of, ready_product
from tests.blackbox.test_kill import BODY, everything_adds_up
from tests.harness.load import Load
from tests.harness.product import Product
from tests.harness.sse import stream
from tests.harness.until import until_async
from tests.harness.upstream import Script, Upstream

PATH = "/v1/chat/completions"
CLIENTS = 10
LONG_STREAMS = 5
# A script's long streams are held back at the worker until the test lets them go.
QUICK = Script(pieces=tuple("abcdefghij"), prompt_tokens=12, completion_tokens=10, gap_s=0.005)


@pytest.fixture(scope="module")
def rolling(tmp_path_factory: pytest.TempPathFactory, served_by: Upstream) -> Iterator[Product]:
    """A product of its own, since its services are going to be succeeded."""
    with ready_product(tmp_path_factory.mktemp("rolling"), served_by) as product:
        yield product


@pytest.mark.parametrize("name", ["edge", "router", "billing"])
async def test_a_service_is_succeeded_twice_under_load_and_no_call_fails(
    name: str, rolling: Product, upstream: Upstream
) -> None:
    upstream.plays(QUICK)
    async with customer_of(rolling, rolling.account("10")) as customer:
        former: list[subprocess.Popen[bytes]] = []
        async with Load(customer.http, BODY, CLIENTS) as load, Newcomers(customer) as newcomers:
            for _ in range(2):
                await load.acknowledged(40)
                former.append(await asyncio.to_thread(rolling.succeed, name))
            await load.acknowledged(40)
        assert load.tally.failed == 0, rolling.tail(name)
        assert newcomers.failed == []
        assert newcomers.served
        await asyncio.to_thread(everything_adds_up, customer, load)
    for old in former:
        # Nobody needs it any more.
        assert await until_async(lambda old=old: old.poll() is not None, f"the old {name} has ended")  # type: ignore[misc]
        assert old.returncode == 0, rolling.tail(name)


async def test_streams_outlive_the_process_that_serves_them_being_succeeded(
    rolling: Product, upstream: Upstream
) -> None:
    upstream.plays(Script(held_back=True))
    async with customer_of(rolling, rolling.account("10")) as customer:
        streams = [
            asyncio.create_task(stream(customer.http, PATH, BODY | {"stream": True})) for _ in range(LONG_STREAMS)
        ]
        await until_async(lambda: upstream.seen.at_once == LONG_STREAMS, "all are at the worker")
        former = [await asyncio.to_thread(rolling.succeed, name) for name in ("billing", "router", "edge")]
        assert [old.poll() for old in former[1:]] == [None, None], "they serve streams"
        # A new request goes another way, and is as good.
        upstream.plays(Script())
        async with httpx.AsyncClient(base_url=rolling.url, headers=customer.http.headers) as other:
            assert (await other.post(PATH, json=BODY)).status_code == 200
        upstream.go()
        for seen in await asyncio.gather(*streams):
            assert seen.done
            assert seen.error is None
            assert seen.usage is not None
            assert "cost" in seen.usage, "billing was there"
        account = await asyncio.to_thread(rolling.settled, customer.account_id)
        assert len(rolling.entries(customer.account_id)) == 1 + LONG_STREAMS + 1, account
    for old in former:
        assert await until_async(lambda old=old: old.poll() is not None, "the old ones have ended")  # type: ignore[misc]
        assert old.returncode == 0


async def test_a_kept_connection_is_served_once_more_and_told_to_go(rolling: Product, upstream: Upstream) -> None:
    async with customer_of(rolling, rolling.account("10")) as customer:
        first = await customer.http.post(PATH, json=BODY)
        old = await asyncio.to_thread(rolling.succeed, "edge")
        second = await customer.http.post(PATH, json=BODY)
        third = await customer.http.post(PATH, json=BODY)
    assert [each.status_code for each in (first, second, third)] == [200, 200, 200]
    assert "connection" not in first.headers
    # On the connection that it had; after that it makes a new one.
    assert second.headers["connection"] == "close"
    assert "connection" not in third.headers
    assert await until_async(lambda: old.poll() is not None, "the old one has ended")


async def test_a_successor_that_dies_before_it_is_ready_changes_nothing(rolling: Product, upstream: Upstream) -> None:
    wrong = {"SPEEDINFER_EDGE__ADMIN_LISTEN": rolling.address("router")}
    done = await asyncio.to_thread(lambda: rolling.run("edge", "--take-over", settings=wrong))
    assert done.code == 1
    assert f"cannot listen on {rolling.address('router')} (edge.admin_listen)" in done.err
    async with customer_of(rolling, rolling.account("10")) as customer:
        assert (await customer.http.post(PATH, json=BODY)).status_code == 200


@pytest.mark.parametrize("name", ["edge", "router", "billing"])
def test_a_second_one_by_mistake_is_told_so(name: str, rolling: Product) -> None:
    done = rolling.run(name)
    assert done.code == 1
    assert f"{rolling.address(name)} ({name}.listen) is taken by another process" in done.err
    assert "--take-over" in done.err


def test_with_nobody_to_succeed_it_just_starts(rolling: Product) -> None:
    assert rolling.stop("router") == 0
    rolling.start("router", options=("--take-over",))
    assert rolling.command("workers", "list")


class Newcomers:
    """A client that connects anew for each request, so that every one of them meets a listener."""

    def __init__(self, customer: Customer) -> None:
        self._customer = customer
        self._stop = asyncio.Event()
        self.failed: list[str] = []
        self.served = 0

    async def __aenter__(self) -> "Newcomers":
        self._tasks = [asyncio.create_task(self._run()) for _ in range(2)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def _run(self) -> None:
        headers = {"authorization": f"Bearer {self._customer.key}", "connection": "close"}
        async with httpx.AsyncClient(base_url=self._customer.product.url, headers=headers, timeout=60) as http:
            while not self._stop.is_set():
                try:
                    answer = await http.post(PATH, json=BODY)
                except httpx.HTTPError as error:
                    self.failed.append(repr(error))
                    continue
                if answer.status_code == 200:
                    self.served += 1
                else:
                    self.failed.append(answer.text)
