"""The writer by itself: order, isolation of a bug, and what is counted."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from google.protobuf.wrappers_pb2 import UInt32Value
from prometheus_client import generate_latest

from services.billing.books import Books
from services.billing.engine import Engine
from services.billing.lease import Leases
from services.billing.ledger import Account
from services.billing.metrics import Metrics
from services.billing.store.open import open_store
from services.billing.store.port import Names
from services.common.errors import ServiceError, Unavailable
from tests.contract.billing.service import Client, MovedClock, Service


@dataclass(frozen=True)
class Open:
    """Opens an account, and then has a bug if it is told to."""

    account_id: str
    bug: bool = False

    def name(self, names: Names) -> None:
        names.accounts.add(self.account_id)

    def apply(self, books: Books) -> UInt32Value:
        found = books.account(self.account_id) is not None
        if not found:
            books.add_account(Account(self.account_id, "n", books.now_ms))
        if self.bug:
            raise ZeroDivisionError
        return UInt32Value(value=int(found))


@dataclass(frozen=True)
class Trust(Open):
    """Lets an account owe one nano-USD more; answers how much that is now."""

    def apply(self, books: Books) -> UInt32Value:
        account = books.account(self.account_id)
        assert account is not None
        account.credit_limit_nanos += 1
        books.limit_account(account)
        if self.bug:
            raise ZeroDivisionError
        return UInt32Value(value=account.credit_limit_nanos)


@pytest.fixture
async def engine(database: str) -> AsyncIterator[Engine]:
    clock = MovedClock()
    store = open_store(database, clock.wall_ms)
    engine = Engine(store, Leases(60_000), clock, Metrics(), max_queue=100, max_batch=10)
    engine.start()
    yield engine
    await engine.stop()
    store.close()


async def outcome(engine: Engine, *operations: Open) -> list[int] | str:
    """What the operations answered, or the reason of the error."""
    try:
        answers = await engine.submit(operations)
    except ServiceError as error:
        return error.reason
    assert answers is not None
    return [answer.value for answer in answers]


async def test_a_bug_costs_its_own_call_alone(engine: Engine) -> None:
    outcomes = await asyncio.gather(
        outcome(engine, Open("a")), outcome(engine, Open("b", bug=True)), outcome(engine, Open("c"), Open("c"))
    )
    assert outcomes == [[0], "INTERNAL", [0, 1]]
    assert await outcome(engine, Open("a"), Open("b"), Open("c")) == [1, 0, 1]


async def test_what_a_bug_undid_is_undone_in_what_the_writer_remembers_too(engine: Engine) -> None:
    await outcome(engine, Open("a"), Open("b"))
    assert await outcome(engine, Trust("a"), Trust("b")) == [1, 1]
    outcomes = await asyncio.gather(outcome(engine, Trust("a")), outcome(engine, Trust("b", bug=True)))
    assert outcomes == [[2], "INTERNAL"]
    assert await outcome(engine, Trust("a"), Trust("b")) == [3, 2]


async def test_nothing_is_taken_after_the_end(database: str) -> None:
    clock = MovedClock()
    store = open_store(database, clock.wall_ms)
    engine = Engine(store, Leases(60_000), clock, Metrics(), max_queue=100, max_batch=10)
    engine.start()
    last = asyncio.gather(*(outcome(engine, Open(str(number))) for number in range(50)))
    await asyncio.sleep(0)
    await engine.stop()
    # What was waiting is done.
    assert await last == [[0]] * 50
    with pytest.raises(Unavailable):
        await engine.submit([Open("late")])
    store.close()


async def test_outcomes_are_counted(service: Service, client: Client) -> None:
    key = await client.key(await client.open_account("1"))
    held = await client.hold(key)
    await client.refusal(client.reserve_item(key))
    await client.settle(held, 250_000, 0)
    text = generate_latest(service.billing.metrics.registry).decode()
    assert 'speedinfer_billing_reservations_total{outcome="held"} 1.0' in text
    assert 'speedinfer_billing_reservations_total{outcome="holds_in_flight"} 1.0' in text
    assert 'speedinfer_billing_settlements_total{outcome="settled"} 1.0' in text
    assert "speedinfer_billing_hold_to_charge_ratio_sum 4.0" in text
    assert "speedinfer_billing_hold_to_charge_ratio_count 1.0" in text
    # The bounds lie where overruns and holds that are too wide begin.
    assert 'speedinfer_billing_hold_to_charge_ratio_bucket{le="3.0"} 0.0' in text
    assert 'speedinfer_billing_hold_to_charge_ratio_bucket{le="4.0"} 1.0' in text
    assert "speedinfer_billing_open_holds 0.0" in text
