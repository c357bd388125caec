"""A crowd on one account: credit for exactly 1,000 holds, ten times as many attempts, 64 callers at once, through gRPC."""

import asyncio
from itertools import cycle, islice

from speedinfer.billing.v1 import reservation_pb2 as pb

from tests.contract.billing.service import Client

USD = 1_000_000_000
CALLERS, ATTEMPTS, AFFORDABLE = 64, 10_000, 1_000
# Items of one message: alone, as by an edge with little to do, and many together.
SIZES = (1, 2, 5, 13, 24)


async def test_exactly_as_many_are_held_as_the_credit_is_for(client: Client) -> None:
    account = await client.open_account(str(AFFORDABLE))
    keys = cycle([await client.key(account) for _ in range(4)])
    items = iter([client.reserve_item(next(keys)) for _ in range(ATTEMPTS)])
    sizes = cycle(SIZES)
    results: list[pb.ReserveResult] = []

    async def call() -> None:
        while mine := list(islice(items, next(sizes))):
            answers = list((await client.reservations.Reserve(pb.ReserveRequest(items=mine))).results)
            assert [answer.reservation_id for answer in answers] == [item.reservation_id for item in mine]
            results.extend(answers)

    await asyncio.gather(*(call() for _ in range(CALLERS)))
    held = [result for result in results if result.HasField("reservation")]
    assert len({result.reservation_id for result in results}) == ATTEMPTS
    assert len(held) == AFFORDABLE
    assert {result.reservation.state for result in held} == {pb.RESERVATION_STATE_HELD}
    refused = {result.refusal.reason for result in results if result.HasField("refusal")}
    assert refused == {pb.REFUSAL_REASON_HOLDS_IN_FLIGHT}
    # All of the credit is set aside, and not a nano more.
    assert await client.balance(account) == (AFFORDABLE * USD, AFFORDABLE * USD)
    verdict = await client.verify()
    assert (verdict.ok, verdict.reservations) == (True, AFFORDABLE)
