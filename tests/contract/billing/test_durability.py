"""What was acknowledged is on disk: kill -9, a full disk, a full queue, and what a drain leaves."""

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from speedinfer.billing.v1 import reservation_pb2 as pb

from tests.contract.billing import sealed_ledger
from tests.contract.billing.acknowledged import Acknowledged, assert_kept, load
from tests.contract.billing.service import Client, Process, Service, status_of

USD = 1_000_000_000


@pytest.mark.processes
async def test_kill_9_loses_nothing_that_was_acknowledged(database: str, tmp_path: Path) -> None:
    process = Process(tmp_path, database)
    client = await process.start()
    await client.set_price()
    account = await client.open_account("1000")
    key = await client.key(account)
    acknowledged = Acknowledged()
    # A server of its own outlives what is killed here, so that less of it says as much.
    for _ in range(1 if database.startswith("postgresql:") else 3):
        acknowledged.want(150)
        callers = [asyncio.create_task(load(client, key, acknowledged)) for _ in range(16)]
        await acknowledged.enough.wait()
        await process.kill()
        await asyncio.gather(*callers)
        await client.channel.close()
        client = await process.start()
        await assert_kept(client, account, acknowledged)
    assert await process.terminate() == 0
    await client.channel.close()


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can be written beyond its first pages; fewer than a reservation needs."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_full_disk_acknowledges_nothing_and_recovers(service: Service, client: Client) -> None:
    account = await client.open_account("10")
    key = await client.key(account)
    held = await client.hold(key)
    item = client.reserve_item(key)
    assert await client.balance(account) == (10 * USD, USD)
    with full_disk():
        for _ in range(3):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.reserve(item)
            assert status_of(caught.value) == "UNAVAILABLE"
        # Reading goes on.
        assert await client.balance(account) == (10 * USD, USD)
    # An outage shortens no lease.
    service.clock.advance(25_000)
    assert (await client.reserve(item)).HasField("reservation")
    assert (await client.renew(held))[1] == 60_000
    assert await service.pass_time(59) == 0
    assert await client.balance(account) == (10 * USD, 2 * USD)
    assert (await client.verify()).ok


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_seal_that_finds_no_room_is_made_later(service: Service, client: Client) -> None:
    account = await client.open_account("10")
    with full_disk():
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await sealed_ledger.seal(client)
        assert status_of(caught.value) == "UNAVAILABLE"
    await client.credit(account, "1")
    assert await sealed_ledger.seal(client) == [1]
    verdict = await client.verify()
    assert (verdict.ok, verdict.seals) == (True, 1)


async def test_a_full_queue_refuses_before_it_looks(database: str, tmp_path: Path) -> None:
    service = Service(tmp_path, database, max_queue=4)
    client = await service.start()
    await client.set_price()
    account = await client.open_account("1000")
    key = await client.key(account)
    calls = [pb.ReserveRequest(items=[client.reserve_item(key) for _ in range(4)]) for _ in range(50)]
    responses = await asyncio.gather(*(client.reservations.Reserve(call) for call in calls))
    outcomes = [{result.refusal.reason for result in response.results} for response in responses]
    assert {frozenset(outcome) for outcome in outcomes} == {
        frozenset({pb.REFUSAL_REASON_BUSY}),
        frozenset({pb.REFUSAL_REASON_UNSPECIFIED}),
    }
    held = sum(4 for outcome in outcomes if pb.REFUSAL_REASON_UNSPECIFIED in outcome)
    assert await client.balance(account) == (1000 * USD, held * USD)
    # The same items are taken afterwards.
    busy = next(call for call, outcome in zip(calls, outcomes, strict=True) if pb.REFUSAL_REASON_BUSY in outcome)
    again = await client.reservations.Reserve(busy)
    assert all(result.HasField("reservation") for result in again.results)
    await service.stop()


async def test_a_second_start_finds_everything_as_it_was(service: Service, client: Client) -> None:
    account = await client.open_account("10")
    operation_id = client.new_id()
    credited = await client.credit(account, "1", operation_id=operation_id)
    key = await client.key(account)
    settled_id = await client.hold(key)
    settled = await client.settle(settled_id, 5, 5)
    await service.stop()
    client = await service.start()
    assert await client.credit(account, "1", operation_id=operation_id) == credited
    assert await client.settle(settled_id, 5, 5) == settled
    assert await client.balance(account) == (11 * USD - 10_000, 0)
