"""PostgreSQL fails in the midst of work: what was acknowledged stays, the rest is not promised, billing recovers by itself."""

import asyncio
import os
import signal
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import grpc
import pytest
from speedinfer.billing.v1 import reservation_pb2 as pb

from tests.contract.billing.acknowledged import Acknowledged, assert_kept, load
from tests.contract.billing.cut import way_to
from tests.contract.billing.postgresql import Server
from tests.contract.billing.service import Client, Service, status_of

pytestmark = [
    pytest.mark.processes,
    pytest.mark.real,
    pytest.mark.parametrize("database", ["postgresql"], indirect=True),
]
USD = 1_000_000_000
RECOVERY_S = 30


async def unavailable(call: Awaitable[Any]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert status_of(caught.value) == "UNAVAILABLE"


async def recovered(client: Client, item: pb.ReserveItem) -> Any:
    """The reservation, as soon as billing can make it again."""
    async with asyncio.timeout(RECOVERY_S):
        while True:
            try:
                return await client.reserve(item)
            except grpc.aio.AioRpcError as error:
                if status_of(error) != "UNAVAILABLE":
                    raise


async def test_an_outage_acknowledges_nothing_and_recovers(
    postgresql: Server, service: Service, client: Client
) -> None:
    account = await client.open_account("10")
    key = await client.key(account)
    held = await client.hold(key)
    item = client.reserve_item(key)
    assert await client.balance(account) == (10 * USD, USD)
    with postgresql.unreachable():
        for call in (client.reserve(item), client.settle(held, 1, 1), client.account(account)):
            await unavailable(call)
    # An outage shortens no lease.
    service.clock.advance(25_000)
    assert (await client.reserve(item)).HasField("reservation")
    assert (await client.renew(held))[1] == 60_000
    assert await service.pass_time(59) == 0
    assert await client.balance(account) == (10 * USD, 2 * USD)
    assert (await client.verify()).ok
    assert await service.pass_time(1) == 2


async def test_questions_survive_a_server_that_was_started_again(
    postgresql: Server, service: Service, client: Client
) -> None:
    account = await client.open_account("10")
    assert (await client.verify()).ok
    postgresql.cut()
    assert await client.balance(account) == (10 * USD, 0)
    assert (await client.verify()).ok


async def test_a_server_that_is_killed_amid_a_load_loses_nothing_that_was_acknowledged(
    postgresql: Server, service: Service, client: Client
) -> None:
    account = await client.open_account("1000")
    key = await client.key(account)
    acknowledged = Acknowledged()
    acknowledged.want(100)
    callers = [asyncio.create_task(load(client, key, acknowledged)) for _ in range(16)]
    await acknowledged.enough.wait()
    # The server cannot trust its shared memory any more: it kills all that it has, and starts again from its log.
    os.kill(postgresql.backends()[0], signal.SIGKILL)
    await asyncio.gather(*callers)
    item = client.reserve_item(key)
    assert (await recovered(client, item)).HasField("reservation")
    assert await client.release(item.reservation_id) == "RELEASED"
    acknowledged[item.reservation_id] = "RELEASED"
    await assert_kept(client, account, acknowledged)


async def test_a_full_disk_acknowledges_nothing_and_recovers(
    postgresql: Server, service: Service, client: Client
) -> None:
    account = await client.open_account("10")
    key = await client.key(account)
    held = await client.hold(key)
    item = client.reserve_item(key)
    # PostgreSQL then stops as a whole, and starts again.
    postgresql.fill_disk()
    await unavailable(client.reserve(item))
    assert (await recovered(client, item)).HasField("reservation")
    assert (await client.settle(held, 10, 5)).status == pb.SETTLE_STATUS_SETTLED
    assert await client.balance(account) == (10 * USD - 15_000, USD)
    assert (await client.verify()).ok


async def test_what_no_standby_confirmed_is_not_acknowledged(
    postgresql: Server, service: Service, client: Client
) -> None:
    account = await client.open_account("10")
    item = client.reserve_item(await client.key(account))
    postgresql.do("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    try:
        postgresql.reload("synchronous_standby_names", "nobody")
        waiting = asyncio.create_task(client.reserve(item))
        await asyncio.to_thread(postgresql.wait_for_waiting, "SyncRep")
        assert not waiting.done()
        # Somebody loses patience with the standby. The server then says that it has committed, and warns.
        postgresql.do("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        await unavailable(waiting)
    finally:
        postgresql.do("ALTER SYSTEM RESET synchronous_standby_names")
        postgresql.reload("synchronous_standby_names", "")
    assert (await recovered(client, item)).HasField("reservation")
    assert await client.balance(account) == (10 * USD, USD)


async def test_a_commit_whose_outcome_nobody_knows_is_looked_up_by_its_id(database: str, tmp_path: Path) -> None:
    async with way_to(database) as way:
        service = Service(tmp_path, way.url)
        client = await service.start()
        await client.set_price()
        account = await client.open_account("10")
        key = await client.key(account)
        item = client.reserve_item(key)

        async def lost(call: Awaitable[Any]) -> None:
            await unavailable(call)
            assert way.cut.is_set()

        way.lose_the_next_commit()
        await lost(client.reserve(item))
        assert await client.balance(account) == (10 * USD, USD)
        assert (await client.reserve(item)).reservation.state == pb.RESERVATION_STATE_HELD
        way.lose_the_next_commit()
        await lost(client.settle(item.reservation_id, 10, 5))
        assert (await client.settle(item.reservation_id, 10, 5)).status == pb.SETTLE_STATUS_SETTLED
        operation_id = client.new_id()
        way.lose_the_next_commit()
        await lost(client.credit(account, "1", operation_id=operation_id))
        await client.credit(account, "1", operation_id=operation_id)
        assert await client.balance(account) == (11 * USD - 15_000, 0)
        assert (await client.verify()).ok
        await service.stop()
