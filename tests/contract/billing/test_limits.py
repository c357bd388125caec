"""A key's limits, decided inside Reserve."""

import asyncio

from speedinfer.billing.v1 import reservation_pb2 as pb

from services.common.money import parse_usd, to_money
from tests.contract.billing.service import Client, Service, stamp


async def limit(client: Client, key: str, **fields: object) -> str:
    """The limit that a reservation meets."""
    result = await client.reserve(client.reserve_item(key, **fields))
    assert result.refusal.reason == pb.REFUSAL_REASON_LIMIT, result
    return str(result.refusal.limit)


async def test_requests_per_minute_count_what_was_held_in_the_utc_minute(service: Service, client: Client) -> None:
    service.clock.wall += 60_000 - service.clock.wall % 60_000 + 45_000
    key = await client.key(await client.open_account("9"), requests_per_minute=2)
    first = await client.reserve(client.reserve_item(key))
    assert (first.limits.requests_limit, first.limits.requests_remaining, first.limits.reset_ms) == (2, 1, 15_000)
    assert not first.limits.HasField("tokens_limit")
    await client.release(await client.hold(key))
    refused = await client.reserve(client.reserve_item(key))
    assert (refused.refusal.limit, refused.refusal.retry_after_ms) == ("requests_per_minute", 15_000)
    assert refused.limits.requests_remaining == 0
    service.clock.advance(15_000)
    again = await client.reserve(client.reserve_item(key))
    assert again.limits.requests_remaining == 1


async def test_tokens_per_minute_fall_and_come_back(service: Service, client: Client) -> None:
    service.clock.wall += 60_000 - service.clock.wall % 60_000
    key = await client.key(await client.open_account("9"), tokens_per_minute=1_000)
    small = {"prompt": pb.PromptSize(text_bytes=401), "output_limit": 500}
    item = client.reserve_item(key, **small)
    assert (await client.reserve(item)).limits.tokens_remaining == 1_000 - 101 - 500
    assert await limit(client, key, **small) == "tokens_per_minute"
    await client.settle(item.reservation_id, 90, 10)
    second = client.reserve_item(key, **small)
    assert (await client.reserve(second)).limits.tokens_remaining == 900 - 601
    # A settle in a later minute leaves that minute alone.
    service.clock.advance(60_000)
    await client.settle(second.reservation_id, 90_000, 10)
    assert (await client.reserve(client.reserve_item(key, **small))).limits.tokens_remaining == 1_000 - 601


async def test_concurrency_is_exact_under_parallel_calls(client: Client) -> None:
    key = await client.key(await client.open_account("50"), concurrency=3)
    results = await asyncio.gather(*(client.reserve(client.reserve_item(key)) for _ in range(20)))
    held = [result.reservation_id for result in results if result.HasField("reservation")]
    assert len(held) == 3
    assert {result.refusal.limit for result in results if result.HasField("refusal")} == {"concurrency"}
    await client.settle(held[0], 1, 1)
    await client.hold(key)
    assert await limit(client, key) == "concurrency"


async def test_spend_includes_holds_and_ends_with_its_window(service: Service, client: Client) -> None:
    account = await client.open_account("90")
    daily = await client.key(account, daily_spend=to_money(parse_usd("1.5")))
    monthly = await client.key(account, monthly_spend=to_money(parse_usd("1.5")))
    for key, name in ((daily, "daily_spend"), (monthly, "monthly_spend")):
        held = await client.hold(key)
        assert await limit(client, key) == name
        await client.settle(held, 500_000, 0)
        held = await client.hold(key)
        await client.release(held)
        await client.settle(await client.hold(key), 1, 0)
        assert await limit(client, key) == name
    service.clock.advance(86_400_000)
    await client.hold(daily)
    assert await limit(client, monthly) == "monthly_spend"
    service.clock.advance(31 * 86_400_000)
    await client.hold(monthly)


async def test_a_key_ends_at_its_moment(service: Service, client: Client) -> None:
    key = await client.key(await client.open_account("9"), expires_at=stamp(service.clock.wall + 1_000))
    await client.hold(key)
    service.clock.advance(1_000)
    assert await client.refusal(client.reserve_item(key)) == "INVALID_KEY"


async def test_counters_survive_a_restart(service: Service, client: Client) -> None:
    key = await client.key(await client.open_account("9"), requests_per_minute=1)
    await client.hold(key)
    await service.stop()
    client = await service.start()
    assert await limit(client, key) == "requests_per_minute"
