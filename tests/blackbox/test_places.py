"""Workers with a bound: requests wait in turn before money is touched, and whoever stops waiting leaves nothing behind."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.blackbox.conftest import Customer, customer_of
from tests.harness.product import Product
from tests.harness.reservations import reservations
from tests.harness.until import until
from tests.harness.upstream import Script, Upstream

MODEL = "acme/bounded"
CHAT = "/v1/chat/completions"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16}


@pytest.fixture
async def bounded(product: Product, upstream: Upstream) -> AsyncIterator[Product]:
    """The product with one worker that takes one request at a time and answers when it is let."""
    upstream.plays(Script(held_back=True))
    document = upstream.registration("bounded-1", max_concurrency=1) | {"supported_models": [MODEL]}
    assert product.register(document)["status"] == "healthy"
    product.price(MODEL)
    yield product
    upstream.go()
    product.command("workers", "remove", "bounded-1")


def in_flight(product: Product) -> int:
    number: int = product.worker("bounded-1")["in_flight"]
    return number


async def test_a_request_that_waits_holds_no_money(bounded: Product, upstream: Upstream, customer: Customer) -> None:
    first = asyncio.create_task(customer.http.post(CHAT, json=BODY))
    await asyncio.to_thread(until, lambda: upstream.seen.bodies, "the first is at the worker")
    others = [asyncio.create_task(customer.http.post(CHAT, json=BODY)) for _ in range(3)]
    done, _ = await asyncio.wait([first, *others], timeout=0.5)
    assert not done
    assert len(reservations(bounded, customer.account_id)) == 1
    assert len(upstream.seen.bodies) == 1
    upstream.go()
    answers = await asyncio.gather(first, *others)
    assert [answer.status_code for answer in answers] == [200] * 4
    assert {held.state for held in reservations(bounded, customer.account_id)} == {"settled"}
    assert upstream.seen.most_at_once == 1


async def test_a_client_that_leaves_the_queue_is_never_served(
    bounded: Product, upstream: Upstream, customer: Customer
) -> None:
    first = asyncio.create_task(customer.http.post(CHAT, json=BODY))
    await asyncio.to_thread(until, lambda: upstream.seen.bodies, "the first is at the worker")
    leaver = asyncio.create_task(customer.http.post(CHAT, json=BODY))
    await asyncio.wait([leaver], timeout=0.3)
    leaver.cancel()
    await asyncio.gather(leaver, return_exceptions=True)
    upstream.go()
    assert (await first).status_code == 200
    await asyncio.to_thread(until, lambda: in_flight(bounded) == 0, "the worker is free")
    assert len(upstream.seen.bodies) == 1
    assert len(reservations(bounded, customer.account_id)) == 1


async def test_a_place_that_money_does_not_follow_goes_to_the_next(bounded: Product, upstream: Upstream) -> None:
    async with customer_of(bounded, bounded.account("0.000001")) as poor:
        answers = await asyncio.gather(*(poor.http.post(CHAT, json=BODY) for _ in range(4)))
    assert {answer.json()["error"]["code"] for answer in answers} == {"insufficient_credit"}
    await asyncio.to_thread(until, lambda: in_flight(bounded) == 0, "the worker is free")
    async with customer_of(bounded, bounded.account("1")) as rich:
        upstream.go()
        assert (await rich.http.post(CHAT, json=BODY)).status_code == 200
