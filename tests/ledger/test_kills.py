"""kill -9 at every step of a call, and at random under load: nothing acknowledged is lost, nothing is done twice.

FUZZ_LEDGER_KILLS says how often it is killed at random; without it a quarter as often where a start takes longer.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest
from speedinfer.billing.v1 import account_pb2, report_pb2
from speedinfer.billing.v1 import reservation_pb2 as pb

from services.common.ids import uuid7
from services.common.money import from_money
from tests.contract.billing.service import ADMIN, Client
from tests.ledger.cradle import COMMITTED, STEPS, Cradle

pytestmark = pytest.mark.processes
USD = 1_000_000_000
KILLS = {"sqlite": 20, "postgresql": 5}
KILLS_WANTED = os.environ.get("FUZZ_LEDGER_KILLS")
CALLERS = 16
# What a settlement of the tests costs: 7 and 3 tokens at 1 USD per million.
CHARGE = 10_000
# What dies, and the engine's name for it.
OPERATIONS = {"reserve": "Reserve", "settle": "Settle", "release": "Release", "credit": "PostCredit"}


@pytest.fixture
async def cradle(database: str, tmp_path: Path) -> AsyncIterator[Cradle]:
    cradle = Cradle(tmp_path, database)
    await cradle.open()
    yield cradle
    await cradle.close()


async def reservations(client: Client, account: str) -> dict[str, Any]:
    """All reservations of the account, by id."""
    found: dict[str, Any] = {}
    token = ""
    while True:
        question = report_pb2.ListReservationsRequest(account_id=account, page_size=1_000, page_token=token)
        page = await client.reports.ListReservations(question, metadata=ADMIN)
        found |= {one.reservation_id: one for one in page.reservations}
        if not (token := page.next_page_token):
            return found


def word(state: pb.ReservationState.ValueType) -> str:
    return pb.ReservationState.Name(state).removeprefix("RESERVATION_STATE_")


class Victim:
    """One call that dies, and what it must have come to."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.id = uuid7()

    async def prepare(self, client: Client, account: str, key: str) -> None:
        self._account = account
        self._item = client.reserve_item(key, reservation_id=self.id)
        if self.kind in ("settle", "release"):
            assert (await client.reserve(self._item)).HasField("reservation")

    async def call(self, client: Client) -> str:
        """The call, as it is made and made again; answers what it was told."""
        match self.kind:
            case "reserve":
                return word((await client.reserve(self._item)).reservation.state)
            case "settle":
                return pb.SettleStatus.Name((await client.settle(self.id, 7, 3)).status).removeprefix("SETTLE_STATUS_")
            case "release":
                return await client.release(self.id)
        result = await client.credit(self._account, "1", operation_id=self.id)
        return account_pb2.MutationStatus.Name(result.status).removeprefix("MUTATION_STATUS_")

    @property
    def figures(self) -> tuple[int, int, int]:
        """What it adds to balance, holds and entries once it is done."""
        return {"reserve": (0, USD, 0), "settle": (-CHARGE, -USD, 1), "release": (0, -USD, 0), "credit": (USD, 0, 1)}[
            self.kind
        ]

    @property
    def word(self) -> str:
        return {"reserve": "HELD", "settle": "SETTLED", "release": "RELEASED", "credit": "DONE"}[self.kind]


async def figures(client: Client, account: str) -> tuple[int, int, int]:
    """Balance, holds and entries."""
    shown = await client.account(account)
    entries = await client.entries(account, page_size=1_000)
    return from_money(shown.balance), from_money(shown.held), len(entries.entries)


@pytest.mark.parametrize("kind", OPERATIONS)
async def test_kill_9_at_every_step_does_a_call_once_or_not_at_all(cradle: Cradle, kind: str) -> None:
    victims = [Victim(kind) for _ in STEPS]
    client = await cradle.start(STEPS[0], OPERATIONS[kind], victims[0].id)
    await client.set_price()
    account = await client.open_account("1000")
    key = await client.key(account)
    for place, step in enumerate(STEPS):
        victim = victims[place]
        await victim.prepare(client, account, key)
        before = await figures(client, account)
        try:
            told = await victim.call(client)
        except grpc.aio.AioRpcError:
            told = ""
        # The one step where the answer may still be quicker.
        assert told == "" or (told, step) == (victim.word, "answered")
        await cradle.gone()
        await client.channel.close()
        following = (STEPS[place + 1], OPERATIONS[kind], victims[place + 1].id) if victim is not victims[-1] else ()
        client = await cradle.start(*following)
        done = tuple(mine + more for mine, more in zip(before, victim.figures, strict=True))
        # Before the commit nothing of it stands, afterwards all of it, although nobody was told.
        assert await figures(client, account) == (done if place >= COMMITTED else before), step
        # Asked again it is answered as if nothing had been, and done once.
        assert await victim.call(client) == victim.word, step
        assert await victim.call(client) == victim.word, step
        assert await figures(client, account) == done, step
    verdict = await client.verify()
    assert verdict.ok, list(verdict.problems)
    await cradle.kill()
    await client.channel.close()


class Acknowledged(dict[str, str]):
    """What was acknowledged last of each reservation; tells when there is enough of it."""

    def __init__(self) -> None:
        super().__init__()
        self.credits = 0
        self.wanted = 0
        self.enough = asyncio.Event()

    def note(self, reservation_id: str, state: str) -> None:
        self[reservation_id] = state
        self.wanted -= 1
        if self.wanted <= 0:
            self.enough.set()


async def load(client: Client, account: str, key: str, acknowledged: Acknowledged, chance: Random) -> None:
    """Reserve, and then settle, release, or neither, until billing is gone."""
    while True:
        item = client.reserve_item(key, prompt=pb.PromptSize(text_bytes=100), output_limit=10)
        try:
            assert (await client.reserve(item)).HasField("reservation")
            acknowledged.note(item.reservation_id, "HELD")
            dice = chance.random()
            if dice < 0.4:
                assert (await client.settle(item.reservation_id, 7, 3)).status == pb.SETTLE_STATUS_SETTLED
                acknowledged.note(item.reservation_id, "SETTLED")
            elif dice < 0.6:
                assert await client.release(item.reservation_id) == "RELEASED"
                acknowledged.note(item.reservation_id, "RELEASED")
            elif dice < 0.7:
                await client.credit(account, "0.000000001")
                acknowledged.credits += 1
        except grpc.aio.AioRpcError:
            return


async def check(client: Client, account: str, acknowledged: Acknowledged, kills: int, where: str) -> None:
    """What was acknowledged stands, and every charge that there is was taken once."""
    verdict = await client.verify()
    assert verdict.ok, (where, list(verdict.problems))
    found = await reservations(client, account)
    lost = [
        (reservation_id, told, word(found[reservation_id].state) if reservation_id in found else "nothing")
        for reservation_id, told in acknowledged.items()
        # What was held only may have been settled or released by a call that got no answer.
        if reservation_id not in found or (told not in ("HELD", word(found[reservation_id].state)))
    ]
    assert not lost, (where, lost)
    settled = sum(one.state == pb.RESERVATION_STATE_SETTLED for one in found.values())
    held = sum(one.state == pb.RESERVATION_STATE_HELD for one in found.values())
    balance, held_nanos = await client.balance(account)
    assert held_nanos == held * 110_000, where
    # One nano for each credit; of those that got no answer each may stand.
    more = balance - (1_000 * USD - settled * CHARGE) - acknowledged.credits
    assert 0 <= more <= CALLERS * kills, (where, more)


async def test_kill_9_at_random_loses_nothing_and_doubles_nothing(cradle: Cradle, database: str) -> None:
    kills = int(KILLS_WANTED or KILLS[database.partition(":")[0]])
    seed = secrets.randbelow(2**32)
    chance = Random(seed)
    client = await cradle.start()
    await client.set_price()
    account = await client.open_account("1000")
    key = await client.key(account)
    acknowledged = Acknowledged()
    for kill in range(kills):
        acknowledged.wanted = chance.randint(1, 60)
        acknowledged.enough.clear()
        callers = [asyncio.create_task(load(client, account, key, acknowledged, chance)) for _ in range(CALLERS)]
        await acknowledged.enough.wait()
        await cradle.kill()
        await asyncio.gather(*callers)
        await client.channel.close()
        client = await cradle.start()
        await check(client, account, acknowledged, kill + 1, f"seed {seed}, kill {kill}")
        # Settlements that are sent again are charged once.
        before = await client.balance(account)
        again = [name for name, told in acknowledged.items() if told == "SETTLED"][-20:]
        answers = await asyncio.gather(*(client.settle(name, 7, 3) for name in again))
        assert {answer.status for answer in answers} <= {pb.SETTLE_STATUS_SETTLED}
        assert await client.balance(account) == before
    await cradle.kill()
    await client.channel.close()
