"""kill -9 under load: no acknowledged charge is lost, none is doubled, and every hold is resolved."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.common.money import parse_usd
from tests.blackbox.conftest import Customer, customer_of, ready_product
from tests.harness.charges import charge_nanos
from tests.harness.load import Load
from tests.harness.product import Product
from tests.harness.reservations import reservations
from tests.harness.upstream import MODEL, Script, Upstream

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16}
TERMINAL = {"settled", "released", "expired", "late"}
CLIENTS = 10
# Short leases, so that what a dead edge left behind lapses while the test waits.
SETTINGS = {"SPEEDINFER_BILLING__LIMITS__LEASE_S": "4"}


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory, served_by: Upstream) -> Iterator[Product]:
    """A product of its own, since its services are going to be killed."""
    with ready_product(tmp_path_factory.mktemp("fragile"), served_by, SETTINGS) as product:
        yield product


@pytest.fixture
def slow_upstream(upstream: Upstream) -> Upstream:
    """Streams take a while, so that there are always some in flight."""
    upstream.plays(Script(pieces=tuple("abcdefghij"), prompt_tokens=12, completion_tokens=10, gap_s=0.01))
    return upstream


@pytest.mark.parametrize("victim", ["billing", "edge"])
async def test_a_service_is_killed_under_load_and_comes_back(
    victim: str, fragile: Product, slow_upstream: Upstream
) -> None:
    async with customer_of(fragile, fragile.account("10")) as customer:
        async with Load(customer.http, BODY, CLIENTS) as load:
            for _ in range(2):
                await load.acknowledged(40)
                await asyncio.to_thread(fragile.kill, victim)
                await asyncio.to_thread(fragile.start, victim)
            await load.acknowledged(40)
        if victim == "edge":
            assert load.tally.failed, "its connections outlived it: the test has shown nothing"
        await asyncio.to_thread(everything_adds_up, customer, load)


async def test_the_router_is_killed_under_load_and_comes_back_with_its_workers(
    fragile: Product, slow_upstream: Upstream
) -> None:
    async with customer_of(fragile, fragile.account("10")) as customer:
        async with Load(customer.http, BODY, CLIENTS) as load:
            await load.acknowledged(40)
            await asyncio.to_thread(fragile.kill, "router")
            await asyncio.to_thread(fragile.start, "router")
            await load.acknowledged(40)
        assert load.tally.failed
        await asyncio.to_thread(everything_adds_up, customer, load)


async def test_all_services_stop_and_start_and_find_their_data(fragile: Product, upstream: Upstream) -> None:
    async with customer_of(fragile, fragile.account("10")) as customer:
        assert (await customer.http.post("/v1/chat/completions", json=BODY)).status_code == 200
        before = fragile.settled(customer.account_id)
        for name in ("edge", "router", "billing"):
            assert await asyncio.to_thread(fragile.stop, name) == 0, fragile.tail(name)
        await asyncio.to_thread(fragile.start, "billing", "router", "edge")
        assert fragile.balance(customer.account_id) == before
        assert (await customer.http.post("/v1/chat/completions", json=BODY)).status_code == 200


def everything_adds_up(customer: Customer, load: Load, others: int | None = None) -> None:
    """Each acknowledged answer has exactly one charge of its own price; nothing else is out of order. With `others` there are
    so many charges beside them."""
    product = customer.product
    account = product.settled(customer.account_id, 60)
    charges = [entry for entry in product.entries(customer.account_id) if entry["kind"] in ("charge", "late_charge")]
    by_request = Counter(entry["request_id"] for entry in charges)
    assert [request for request, times in by_request.items() if times > 1] == []
    assert set(load.tally.acknowledged) - set(by_request) == set()
    assert others is None or len(by_request) == len(load.tally.acknowledged) + others
    amounts = {entry["request_id"]: -parse_usd(entry["amount"]) for entry in charges}
    for request_id, usage in load.tally.acknowledged.items():
        assert amounts[request_id] == charge_nanos(usage, "0.20", "0.60")
    assert parse_usd(account["balance"]) == parse_usd("10") - sum(amounts.values())
    assert {held.state for held in reservations(product, customer.account_id)} <= TERMINAL
    audit = product.run("ledger", "verify")
    assert audit.code == 0, audit.out + audit.err
    outbox: list[Path] = list(product.data_dir.rglob("*quarantine*"))
    assert [path for path in outbox if path.is_file() and path.stat().st_size] == []
