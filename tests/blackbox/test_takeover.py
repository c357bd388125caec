"""A rolling restart: each service is succeeded by another process while clients ask and stream, and nobody notices."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from tests.blackbox.conftest import Customer, customer_of, ready_product
from tests.blackbox.test_kill import BODY, everything_adds_up
from tests.harness import http_client
from tests.harness.load import Load
from tests.harness.product import Product
from tests.harness.sse import stream
from tests.harness.until import until_async
from tests.harness.upstream import Script, Upstream

PATH = "/v1/chat/completions"
CLIENTS = 10
LONG_STREAMS = 5
QUICK = Script(pieces=tuple("abcdefghij"), prompt_tokens=12, completion_tokens=10, gap_s=0.005)


@pytest.fixture(scope="module")
def rolling(tmp_path_factory: pytest.TempPathFactory, served_by: Upstream) -> Iterator[Product]:
    """A product of its own, since its services are going to be succeeded."""
    with ready_product(tmp_path_factory.mktemp("rolling"), served_by) as product:
        yield product


async def test_a_rolling_restart_fails_no_call_and_cuts_no_stream(rolling: Product, upstream: Upstream) -> None:
    async with (
        customer_of(rolling, rolling.account("10")) as busy,
        customer_of(rolling, rolling.account("10")) as patient,
        kept_connection(patient) as kept,
    ):
        # These are at the worker from before the first succession until after the last.
        upstream.plays(Script(held_back=True))
        long = [asyncio.create_task(stream(patient.http, PATH, BODY | {"stream": True})) for _ in range(LONG_STREAMS)]
        await until_async(lambda: upstream.seen.at_once == LONG_STREAMS, "all are at the worker")
        upstream.plays(QUICK)
        first = await kept.post(PATH, json=BODY)
        async with Load(busy.http, BODY, CLIENTS) as load, Newcomers(busy) as newcomers:
            former = {}
            for name in ("billing", "router", "edge"):
                await load.acknowledged(20)
                former[name] = await asyncio.to_thread(rolling.succeed, name)
            await load.acknowledged(20)
        assert load.tally.failed == 0, "\n".join(map(rolling.tail, former))
        assert newcomers.failed == []
        assert newcomers.served > 0
        await asyncio.to_thread(everything_adds_up, busy, load, newcomers.served)

        second, third = await kept.post(PATH, json=BODY), await kept.post(PATH, json=BODY)
        assert [each.status_code for each in (first, second, third)] == [200, 200, 200]
        # The old edge serves the connection that it has once more; after that the client makes a new one.
        assert [each.headers.get("connection") for each in (first, second, third)] == [None, "close", None]

        assert [former[name].poll() for name in ("router", "edge")] == [None, None], "the long streams are theirs"
        upstream.go()
        for seen in await asyncio.gather(*long):
            assert seen.done
            assert seen.error is None
            assert seen.usage is not None
            assert "cost" in seen.usage, "billing was there"
        await asyncio.to_thread(rolling.settled, patient.account_id)
        assert len(rolling.entries(patient.account_id)) == 1 + LONG_STREAMS + 3
    for name, old in former.items():
        assert await until_async(lambda old=old: old.poll() is not None, f"the old {name} has ended")  # type: ignore[misc]
        assert old.returncode == 0, rolling.tail(name)


async def test_a_successor_that_fails_before_it_is_ready_changes_nothing(rolling: Product, upstream: Upstream) -> None:
    wrong = {"SPEEDINFER_EDGE__ADMIN_LISTEN": rolling.address("router")}
    done = await asyncio.to_thread(lambda: rolling.run("edge", "--take-over", settings=wrong))
    assert done.code == 1
    assert f"cannot listen on {rolling.address('router')} (edge.admin_listen)" in done.err
    async with customer_of(rolling, rolling.account("10")) as customer:
        answer = await customer.http.post(PATH, json=BODY)
        assert answer.status_code == 200
        assert "connection" not in answer.headers


async def test_a_successor_of_billing_that_could_not_open_its_ledger_changes_nothing(rolling: Product) -> None:
    wrong = {"SPEEDINFER_BILLING__DATABASE": "sqlite:////tmp"}
    done = await asyncio.to_thread(lambda: rolling.run("billing", "--take-over", settings=wrong))
    assert done.code == 1
    assert "billing.database: /tmp cannot be taken over" in done.err
    async with customer_of(rolling, rolling.account("10")) as customer:
        assert (await customer.http.post(PATH, json=BODY)).status_code == 200


async def test_without_streams_an_old_router_ends_at_once(rolling: Product, upstream: Upstream) -> None:
    upstream.plays(QUICK)
    async with customer_of(rolling, rolling.account("10")) as customer:
        assert (await customer.http.post(PATH, json=BODY)).status_code == 200
    old = await asyncio.to_thread(rolling.succeed, "router")
    assert await until_async(lambda: old.poll() is not None, "the old router has ended")
    assert old.returncode == 0, rolling.tail("router")


def kept_connection(customer: Customer) -> httpx.AsyncClient:
    """A client that keeps its one connection for longer than a succession takes."""
    return http_client.plain(
        base_url=customer.product.url,
        headers={"authorization": f"Bearer {customer.key}"},
        timeout=60,
        limits=httpx.Limits(max_connections=1, keepalive_expiry=60),
    )


class Newcomers:
    """Clients that connect anew for each request, so that every one of them meets a listener."""

    def __init__(self, customer: Customer) -> None:
        self._customer = customer
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
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
        async with http_client.plain(base_url=self._customer.product.url, headers=headers, timeout=60) as http:
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
