"""A load that notes what was acknowledged, and a look at whether all of it is still so."""

import asyncio

import grpc
from speedinfer.billing.v1 import reservation_pb2 as pb

from services.common.money import from_money
from tests.contract.billing.service import Client

CREDIT_NANOS = 1_000 * 1_000_000_000
CHARGE_NANOS = 10_000


class Acknowledged(dict[str, str]):
    """What was acknowledged, by reservation; tells when there is enough of it."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted = 0
        self.enough = asyncio.Event()

    def __setitem__(self, reservation_id: str, state: str) -> None:
        super().__setitem__(reservation_id, state)
        if len(self) >= self.wanted:
            self.enough.set()

    def want(self, more: int) -> None:
        self.wanted = len(self) + more
        self.enough.clear()


async def load(client: Client, key: str, acknowledged: Acknowledged) -> None:
    """Reserve and settle or release until the service is gone; notes what was acknowledged, step by step."""
    for turn in range(10_000):
        item = client.reserve_item(key, prompt=pb.PromptSize(text_bytes=100), output_limit=10)
        try:
            assert (await client.reserve(item)).HasField("reservation")
            acknowledged[item.reservation_id] = "HELD"
            if turn % 3 == 0:
                continue
            if turn % 3 == 1:
                assert await client.release(item.reservation_id) == "RELEASED"
                acknowledged[item.reservation_id] = "RELEASED"
                continue
            assert (await client.settle(item.reservation_id, 7, 3)).status == pb.SETTLE_STATUS_SETTLED
            acknowledged[item.reservation_id] = "SETTLED"
        except grpc.aio.AioRpcError:
            return


async def assert_kept(client: Client, account: str, acknowledged: Acknowledged) -> None:
    """Nothing that was acknowledged is lost, and nothing is charged twice; not even by what is sent again now."""
    charged = 0
    for reservation_id, word in acknowledged.items():
        found = await client.request(account, reservation_id)
        state = pb.ReservationState.Name(found.state).removeprefix("RESERVATION_STATE_")
        # What was held only may have been settled or released by a call that got no answer.
        assert state == word or word == "HELD"
        charged += from_money(found.charge)
    verdict = await client.verify()
    assert verdict.ok, list(verdict.problems)
    balance, held = await client.balance(account)
    unanswered = verdict.reservations - len(acknowledged)
    assert CREDIT_NANOS - charged - unanswered * CHARGE_NANOS <= balance <= CREDIT_NANOS - charged
    for reservation_id, word in acknowledged.items():
        if word == "SETTLED":
            assert (await client.settle(reservation_id, 7, 3)).status == pb.SETTLE_STATUS_SETTLED
    assert await client.balance(account) == (balance, held)
