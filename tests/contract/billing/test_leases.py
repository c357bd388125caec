"""Leases: a hold lapses when nobody renews it, and never because billing or its clock was at fault."""

import asyncio
from pathlib import Path

from speedinfer.billing.v1 import reservation_pb2 as pb

from services.billing.app import Billing
from services.billing.operations.release import Lapse
from services.billing.operations.reserve import Reserve
from services.billing.rules import Rules
from tests.contract.billing.service import Client, Service, of_request, settings

HOUR_MS = 3_600_000


async def test_a_renewed_hold_lasts_up_to_its_hard_end(service: Service, client: Client) -> None:
    key = await client.key(await client.open_account("10"))
    reservation_id = client.new_id()
    await client.hold(key, reservation_id=reservation_id, context=of_request(reservation_id, remaining_ms=10_000))
    assert await service.pass_time(50) == 0
    assert await client.renew(reservation_id) == ("RENEWED", 60_000)
    assert await service.pass_time(50) == 0
    assert await client.renew(reservation_id) == ("RENEWED", 30_000)
    assert await client.renew(reservation_id) == ("AT_HARD_END", 30_000)
    assert await service.pass_time(29) == 0
    assert await service.pass_time(1) == 1


async def test_holds_lapse_however_rarely_they_are_looked_for(database: str, tmp_path: Path) -> None:
    billing = Billing(settings(tmp_path, database, lease_s=0.4, expiry_interval_s=3600))
    client = Client(await billing.start())
    await client.set_price()
    account_id = await client.open_account("10")
    await client.hold(await client.key(account_id))

    async def is_free() -> bool:
        return (await client.balance(account_id))[1] == 0

    async with asyncio.timeout(30):
        while not await is_free():
            await asyncio.sleep(0.05)
    await client.channel.close()
    await billing.drain()


async def test_steps_of_the_wall_clock_shorten_no_lease(service: Service, client: Client) -> None:
    key = await client.key(await client.open_account("10"))
    held = await client.hold(key)
    service.clock.wall += 24 * HOUR_MS
    assert await service.pass_time(59) == 0
    service.clock.wall -= 48 * HOUR_MS
    assert await client.renew(held) == ("RENEWED", 60_000)


async def test_after_a_restart_every_open_hold_has_a_full_lease(service: Service, client: Client) -> None:
    key = await client.key(await client.open_account("10"))
    held = await client.hold(key)
    await service.pass_time(59)
    await service.stop()
    # Down for longer than the hold could have lived, and monotonic time begins anew.
    service.clock.wall += 24 * HOUR_MS
    service.clock.monotonic = 7
    client = await service.start()
    assert await service.pass_time(59) == 0
    assert await client.renew(held) == ("AT_HARD_END", 1_000)
    assert await service.pass_time(1) == 1
    assert (await client.settle(held, 1, 1)).status == pb.SETTLE_STATUS_LATE


async def test_a_service_that_was_stopped_for_a_while_lets_nothing_lapse(service: Service, client: Client) -> None:
    key = await client.key(await client.open_account("10"))
    await client.hold(key)
    # As after SIGSTOP: time went on, but nobody could have renewed.
    service.clock.advance(10 * 60_000)
    assert await service.billing.sweep() == 0
    assert await service.pass_time(59) == 0
    assert await service.pass_time(1) == 1


async def test_a_lapse_beside_another_change_of_its_account_is_known_to_what_follows(
    service: Service, client: Client
) -> None:
    """The sweep loads what it finds once the batch has begun: its account is loaded twice, and one of the two counts."""
    key = await client.key(await client.open_account("10"))
    await client.hold(key)
    await service.stop()
    client = await service.start()
    service.clock.advance(25_000)
    await service.billing.sweep()
    service.clock.advance(25_000)
    await service.billing.sweep()
    service.clock.advance(10_000)
    two = [Reserve(client.reserve_item(key), Rules()) for _ in range(2)]
    found = await service.billing.engine.submit([*two, Lapse(10)])
    assert found is not None
    assert [one.reservation.state for one in found[:2]] == [pb.RESERVATION_STATE_HELD] * 2
    assert found[2].value == 1
    # Eight more fit, and no ninth.
    assert len([await client.hold(key) for _ in range(8)]) == 8
    assert await client.refusal(client.reserve_item(key)) == "HOLDS_IN_FLIGHT"
