"""Several billing services on one PostgreSQL database: exact together, and no hold is lost or lapses early between them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from speedinfer.billing.v1 import reservation_pb2 as pb

from services.common.money import to_money
from tests.contract.billing.postgresql import Server
from tests.contract.billing.service import Client, MovedClock, Process, Service

pytestmark = [pytest.mark.processes, pytest.mark.real]
USD = 1_000_000_000


@dataclass(frozen=True)
class Two:
    """Two services in this process, on one clock. The first one sweeps."""

    services: tuple[Service, Service]
    clock: MovedClock

    @property
    def clients(self) -> tuple[Client, Client]:
        return self.services[0].client, self.services[1].client

    async def pass_time(self, seconds: int, sweeping: Sequence[int] = (0, 1)) -> list[int]:
        """Move the clock; how many holds lapsed at each."""
        lapsed = [0, 0]
        for _ in range(seconds):
            self.clock.advance(1_000)
            for number in sweeping:
                lapsed[number] += await self.services[number].billing.sweep()
        return lapsed


@asynccontextmanager
async def two_services(
    postgresql: Server, data_dir: Path, *clocks: MovedClock
) -> AsyncIterator[tuple[Service, Service]]:
    """One for each clock, on an empty database, with a price."""
    postgresql.empty()
    one, other = (Service(data_dir, postgresql.url, clock) for clock in clocks)
    async with AsyncExitStack() as stack:
        for service in (one, other):
            await service.start()
            stack.push_async_callback(service.stop)
        await other.client.set_price()
        yield one, other


@pytest.fixture
async def two(postgresql: Server, tmp_path: Path) -> AsyncIterator[Two]:
    clock = MovedClock()
    async with two_services(postgresql, tmp_path, clock, clock) as services:
        yield Two(services, clock)


async def test_what_one_did_the_other_knows_at_once(two: Two) -> None:
    one, other = two.clients
    account = await one.open_account("10")
    key = await other.key(account)
    item = one.reserve_item(key)
    held = await one.reserve(item)
    assert held.reservation.state == pb.RESERVATION_STATE_HELD
    assert (await other.reserve(item)).reservation.reservation_id == item.reservation_id
    assert await other.balance(account) == (10 * USD, USD)
    settled = await other.settle(item.reservation_id, 10, 5)
    assert await one.settle(item.reservation_id, 10, 5) == settled
    assert (await one.settle(item.reservation_id, 10, 6)).status == pb.SETTLE_STATUS_CONFLICT
    await one.set_price("2", "2")
    cheap = await other.settle(await other.hold(key, output_limit=1), 10, 5)
    assert cheap.reservation.charge.nanos == 30_000
    await one.revoke(key)
    assert await other.refusal(other.reserve_item(key)) == "INVALID_KEY"
    assert (await one.verify()).ok


async def test_an_id_at_both_at_once_is_held_and_charged_once(two: Two) -> None:
    one, other = two.clients
    account = await one.open_account("100")
    key = await one.key(account)
    items = [one.reserve_item(key) for _ in range(20)]
    answers = await asyncio.gather(*(client.reserve(item) for item in items for client in two.clients))
    assert {answer.reservation.state for answer in answers} == {pb.RESERVATION_STATE_HELD}
    assert await one.balance(account) == (100 * USD, 20 * USD)
    settles = [client.settle(item.reservation_id, 10, 5) for item in items for client in two.clients]
    assert {answer.status for answer in await asyncio.gather(*settles)} == {pb.SETTLE_STATUS_SETTLED}
    assert await other.balance(account) == (100 * USD - 20 * 15_000, 0)
    assert (await one.verify()).ok


async def test_what_no_account_guards_is_done_once(two: Two) -> None:
    one, _ = two.clients
    account = await one.open_account("0")
    ids = [one.new_id() for _ in range(20)]
    posts = [client.credit(account, "1", operation_id=name) for name in ids for client in two.clients]
    entries = Counter(result.entry_id for result in await asyncio.gather(*posts))
    assert (len(entries), set(entries.values())) == (20, {2})
    assert await one.balance(account) == (20 * USD, 0)
    made = [client.create_account("1", operation_id=name) for name in (one.new_id(),) for client in two.clients]
    assert len({result.account.account_id for result in await asyncio.gather(*made)}) == 1
    unknown = [one.new_id() for _ in range(20)]
    releases = await asyncio.gather(*(client.release(name) for name in unknown for client in two.clients))
    assert set(releases) == {"RELEASED"}
    assert (await one.verify()).ok


async def test_a_call_is_judged_at_the_moment_when_it_has_its_account(two: Two, postgresql: Server) -> None:
    one, other = two.clients
    account = await one.open_account("1000")
    key = await one.key(account, requests_per_minute=5)
    two.clock.wall += 60_000 - two.clock.wall % 60_000 - 1
    with postgresql.behind_its_back() as locks:
        locks.execute("BEGIN")
        locks.execute("SELECT 1 FROM account WHERE account_id = %s FOR UPDATE", [account])
        waiting = asyncio.ensure_future(other.reserve(other.reserve_item(key)))
        await asyncio.to_thread(postgresql.wait_for_waiting)
        two.clock.wall += 1
        locks.execute("COMMIT")
    held = (await waiting).reservation
    assert held.created_at.ToMilliseconds() == two.clock.wall
    for _ in range(4):
        await one.hold(key)
    assert await one.refusal(one.reserve_item(key)) == "LIMIT"


async def test_a_slower_clock_takes_no_window_back(postgresql: Server, tmp_path: Path) -> None:
    day_ms = 86_400_000
    midnight_ms = 1_800_000_000_000 // day_ms * day_ms
    fast, slow = MovedClock(midnight_ms + 1), MovedClock(midnight_ms - 9_000)
    async with two_services(postgresql, tmp_path, fast, slow) as (one_service, other_service):
        one, other = one_service.client, other_service.client
        account = await one.open_account("1000")
        for limits in ({"requests_per_minute": 4}, {"daily_spend": to_money(4 * USD)}):
            key = await one.key(account, **limits)
            for client in (one, other, one, other):
                await client.hold(key)
            for client in (other, one):
                assert (await client.reserve(client.reserve_item(key))).refusal.limit == next(iter(limits))
        # What the slower one holds is counted, and corrected, in the day that the faster one began.
        key = await other.key(account, daily_spend=to_money(4 * USD + 15_000))
        await other.settle(await other.hold(key), 10, 5)
        for _ in range(4):
            await other.hold(key)
        assert await one.refusal(one.reserve_item(key)) == "LIMIT"


async def test_limits_and_idempotency_keys_hold_over_both(two: Two) -> None:
    one, _ = two.clients
    account = await one.open_account("1000")

    async def outcomes(key: str, **fields: str) -> Counter[str]:
        """Of 16 requests at each, all at once."""
        calls = [client.reserve(client.reserve_item(key, **fields)) for _ in range(16) for client in two.clients]
        return Counter(
            pb.RefusalReason.Name(one.refusal.reason) if one.HasField("refusal") else "held"
            for one in await asyncio.gather(*calls)
        )

    limited = {"held": 5, "REFUSAL_REASON_LIMIT": 27}
    assert await outcomes(await one.key(account, concurrency=5)) == limited
    assert await outcomes(await one.key(account, requests_per_minute=5)) == limited
    duplicates = {"held": 1, "REFUSAL_REASON_DUPLICATE_REQUEST": 31}
    assert await outcomes(await one.key(account), idempotency_key="one-order") == duplicates
    await one.limit_account(account, concurrency=14)
    assert await outcomes(await one.key(account)) == {"held": 3, "REFUSAL_REASON_LIMIT": 29}


async def test_accounts_are_locked_in_sorted_order_before_anything_is_judged(two: Two, postgresql: Server) -> None:
    one, _ = two.clients
    accounts = sorted([await one.open_account("10") for _ in range(8)])
    keys = [await one.key(account) for account in accounts]
    free = "SELECT account_id FROM account WHERE kind = 'customer' ORDER BY account_id FOR UPDATE SKIP LOCKED"
    with closing(postgresql.connect()) as other:
        other.execute("BEGIN")
        other.execute("SELECT 1 FROM account WHERE account_id = %s FOR UPDATE", [accounts[4]])
        items = [one.reserve_item(key) for key in reversed(keys)]
        waiting = asyncio.create_task(_reserve(one, items))
        await asyncio.to_thread(postgresql.wait_for_waiting)
        # Those before the one that it waits for are its own, and those after it nobody's: no two can wait in a circle.
        assert postgresql.do(free) == [(account,) for account in accounts[5:]]
        other.execute("UPDATE account SET balance_nanos = 0 WHERE account_id = %s", [accounts[4]])
        other.execute("COMMIT")
        # What the lock's last holder left is what was judged.
        assert [answer.HasField("reservation") for answer in await waiting] == [True] * 3 + [False] + [True] * 4


async def _reserve(client: Client, items: Sequence[pb.ReserveItem]) -> Sequence[pb.ReserveResult]:
    return list((await client.reservations.Reserve(pb.ReserveRequest(items=items))).results)


async def test_a_renewal_at_the_other_is_seen_by_the_one_that_sweeps(two: Two) -> None:
    _, other = two.clients
    account = await other.open_account("10")
    key = await other.key(account)
    held = await other.hold(key)
    assert await two.pass_time(50) == [0, 0]
    assert await other.renew(held) == ("RENEWED", 60_000)
    assert await two.pass_time(59) == [0, 0]
    assert await other.renew(held) == ("RENEWED", 60_000)
    # What nobody renews any more lapses, once, at the one that sweeps.
    lapsed = await two.pass_time(130)
    assert lapsed == [1, 0]
    assert await other.balance(account) == (10 * USD, 0)
    assert (await other.settle(held, 1, 1)).status == pb.SETTLE_STATUS_LATE


async def test_another_sweeps_when_the_one_that_did_is_gone(two: Two) -> None:
    first, second = two.services
    account = await first.client.open_account("10")
    await first.client.hold(await first.client.key(account))
    await two.pass_time(50)
    await first.stop()
    # It does not know what was renewed at the other: a full lease begins, from when it looked.
    assert await two.pass_time(59, sweeping=[1]) == [0, 0]
    assert await two.pass_time(10, sweeping=[1]) == [0, 1]
    await first.start()
    assert await second.client.balance(account) == (10 * USD, 0)


CALLERS, ATTEMPTS, CREDIT = 64, 10_000, 1_000
ITEMS = 10


async def test_two_processes_hold_exactly_what_the_credit_is_for(postgresql: Server, tmp_path: Path) -> None:
    postgresql.empty()
    processes = [Process(tmp_path, postgresql.url) for _ in range(2)]
    clients = await asyncio.gather(*(process.start() for process in processes))
    await clients[0].set_price()
    account = await clients[0].open_account(str(CREDIT))
    key = await clients[0].key(account)
    left = iter(range(0, ATTEMPTS, ITEMS))

    async def caller(number: int) -> Counter[tuple[int, str]]:
        """Takes of the attempts what is left, a few in each call."""
        client, outcomes = clients[number % 2], Counter[tuple[int, str]]()
        for _ in left:
            request = pb.ReserveRequest(items=[client.reserve_item(key) for _ in range(ITEMS)])
            for result in (await client.reservations.Reserve(request)).results:
                outcomes[number % 2, str(result.WhichOneof("outcome"))] += 1
        return outcomes

    outcomes = sum(await asyncio.gather(*map(caller, range(CALLERS))), Counter[tuple[int, str]]())
    held = [outcomes[number, "reservation"] for number in range(2)]
    # Both have a part in it.
    assert (sum(held), min(held) > 0, outcomes.total()) == (CREDIT, True, ATTEMPTS)
    assert await clients[1].balance(account) == (CREDIT * USD, CREDIT * USD)
    verdict = await clients[0].verify()
    assert (verdict.ok, verdict.reservations) == (True, CREDIT)
    for client, process in zip(clients, processes, strict=True):
        await client.channel.close()
        assert await process.terminate() == 0
