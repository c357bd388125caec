"""Renewals that fail: each batch fares by itself, and what was not renewed is tried again before its next turn."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from speedinfer.billing.v1.reservation_pb2 import ReserveItem

from services.edge import holds
from services.edge.billing_client import BillingClient
from services.edge.holds import Holds
from tests.fakes.scripted_billing import Hold, ScriptedBilling
from tests.unit.edge.conftest import eventually

FAULTS = ["RESOURCE_EXHAUSTED", "INTERNAL", "UNKNOWN", "ABORTED", "INVALID_ARGUMENT"]


@pytest.fixture
async def billing(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedBilling]:
    """It holds `a` to `e`; a call renews two of them."""
    monkeypatch.setattr(holds, "_MAX_ITEMS", 2)
    made = ScriptedBilling(holds={name: Hold(ReserveItem(reservation_id=name)) for name in "abcde"})
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def kept(billing: ScriptedBilling) -> AsyncIterator[Holds]:
    client = BillingClient([f"127.0.0.1:{billing.port}"], 5.0)
    yield Holds(client)
    await client.close()


def renewals(billing: ScriptedBilling) -> dict[str, int]:
    return {name: hold.renewals for name, hold in billing.holds.items()}


def asked(billing: ScriptedBilling, name: str) -> int:
    return billing.calls.count(("renew", name))


@pytest.mark.parametrize("code", FAULTS)
async def test_a_batch_that_fails_keeps_no_other_from_being_renewed(
    billing: ScriptedBilling, kept: Holds, code: str
) -> None:
    for name in "abcde":
        kept.keep(name, 60_000)
    billing.renew_fault = lambda ids: grpc.StatusCode[code] if "a" in ids else None
    assert await kept.renew_once(list("abcde")) == ["a", "b"]
    assert renewals(billing) == {"a": 0, "b": 0, "c": 1, "d": 1, "e": 1}
    assert len(kept) == 5
    kept.drop("a")
    # What was closed meanwhile is not asked for, and so is at no fault.
    assert await kept.renew_once(["a", "b"]) == []
    assert renewals(billing)["b"] == 1
    assert asked(billing, "a") == 1


async def test_what_was_not_renewed_is_tried_again_before_all_have_their_next_turn(
    billing: ScriptedBilling, kept: Holds
) -> None:
    for name in "abc":
        kept.keep(name, 400)

    def fault(ids: list[str]) -> grpc.StatusCode | None:
        # As often as `c` has its turn, the first batch has it too; it needs two times more.
        again = asked(billing, "a") - asked(billing, "c")
        return grpc.StatusCode.RESOURCE_EXHAUSTED if "a" in ids and again < 2 else None

    billing.renew_fault = fault
    renewing = asyncio.create_task(kept.renew())
    await eventually(lambda: billing.holds["a"].renewals and billing.holds["c"].renewals)
    renewing.cancel()
    await asyncio.gather(renewing, return_exceptions=True)
    assert renewals(billing)["b"] == renewals(billing)["a"]


async def test_a_shorter_lease_waits_for_no_longer_ones(billing: ScriptedBilling, kept: Holds) -> None:
    kept.keep("a", 3_600_000)
    renewing = asyncio.create_task(kept.renew())
    # It has begun to wait for the longest pause.
    await asyncio.sleep(0)
    kept.keep("b", 40)
    await eventually(lambda: billing.holds["a"].renewals and billing.holds["b"].renewals, holds._LONGEST_PAUSE_S / 2)
    renewing.cancel()
    await asyncio.gather(renewing, return_exceptions=True)
