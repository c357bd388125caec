"""A question for a hold that gets no answer leaves no hold behind; one that was never sent needs no release."""

import asyncio

import pytest
from speedinfer.billing.v1.reservation_pb2 import ReserveItem

from tests.unit.edge.conftest import Make, Stand, eventually


async def until_under_way(stand: Stand) -> None:
    """The message has left."""
    reserves = stand.edge._billing._reserves
    await eventually(lambda: reserves._sender is not None and len(reserves) == 0)


async def test_a_hold_that_is_not_answered_in_time_is_released(make_stand: Make) -> None:
    stand = await make_stand(billing_timeout_s=0.2)
    stand.billing.reserves.clear()
    answer = await stand.post()
    assert (answer.status, answer.error["code"]) == (503, "billing_unavailable")
    await eventually(lambda: stand.billing.names() == ["release"])
    assert stand.billing.only.cause == "billing_unavailable"


async def test_a_hold_that_was_not_asked_for_is_not_released(make_stand: Make) -> None:
    stand = await make_stand(billing_timeout_s=0.2)
    stand.billing.reserves.clear()
    other = asyncio.create_task(stand.edge._billing._reserves.ask(ReserveItem(reservation_id="other"), 60))
    await until_under_way(stand)
    answer = await stand.post()
    assert (answer.status, answer.error["code"]) == (503, "billing_unavailable")
    assert stand.metric("releases_total", cause="billing_unavailable") == 0
    stand.billing.reserves.set()
    assert (await other).reservation_id == "other"
    assert stand.billing.calls == [("reserve", "other")]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_hold_that_the_end_of_a_drain_cut_off_is_released(stand: Stand, stream: bool) -> None:
    stand.billing.reserves.clear()
    post = asyncio.create_task(stand.post(stand.body(stream=stream)))
    await until_under_way(stand)
    await stand.edge._inference._jobs.cancel()
    await eventually(lambda: stand.billing.names() == ["release"])
    await asyncio.gather(post, return_exceptions=True)
    assert stand.router.items == []
