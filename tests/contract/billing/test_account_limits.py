"""An account's limits: all of its keys together, decided inside Reserve beside each key's own."""

import asyncio

import pytest
from speedinfer.billing.v1 import access_pb2, account_pb2
from speedinfer.billing.v1 import reservation_pb2 as pb

from services.common.apikey import make_key
from services.common.money import from_money, parse_usd, to_money
from tests.contract.billing.service import MODEL, Client, Service, stamp
from tests.contract.billing.test_limits import limit

USD = 1_000_000_000


def usd(text: str) -> object:
    return to_money(parse_usd(text))


async def two_keys(client: Client, credit: str = "90", **limits: object) -> tuple[str, str, str]:
    """An account with limits and two keys without."""
    account = str((await client.create_account(credit, limits=account_pb2.AccountLimits(**limits))).account.account_id)  # type: ignore[arg-type]
    return account, await client.key(account), await client.key(account)


async def test_requests_and_tokens_of_all_keys_count_together(service: Service, client: Client) -> None:
    service.clock.wall += 60_000 - service.clock.wall % 60_000 + 45_000
    _, one, other = await two_keys(client, requests_per_minute=2)
    await client.hold(one)
    await client.release(await client.hold(other))
    refused = await client.reserve(client.reserve_item(one))
    assert (refused.refusal.limit, refused.refusal.retry_after_ms) == ("requests_per_minute", 15_000)
    assert "the account's requests" in refused.refusal.message
    assert (refused.limits.requests_limit, refused.limits.requests_remaining) == (2, 0)
    service.clock.advance(15_000)
    await client.hold(one)
    _, one, other = await two_keys(client, tokens_per_minute=1_000)
    small = {"prompt": pb.PromptSize(text_bytes=400), "output_limit": 500}
    item = client.reserve_item(one, **small)
    assert (await client.reserve(item)).limits.tokens_remaining == 400
    assert await limit(client, other, **small) == "tokens_per_minute"
    await client.settle(item.reservation_id, 90, 10)
    assert (await client.reserve(client.reserve_item(other, **small))).limits.tokens_remaining == 300


async def test_the_headers_tell_of_the_tighter_of_key_and_account(client: Client) -> None:
    account, loose, _ = await two_keys(client, requests_per_minute=5, tokens_per_minute=9_000_000)
    tight = await client.key(account, requests_per_minute=2)
    held = await client.reserve(client.reserve_item(tight))
    assert (held.limits.requests_limit, held.limits.requests_remaining) == (2, 1)
    assert held.limits.tokens_limit == 9_000_000
    for left in (3, 2, 1, 0):
        held = await client.reserve(client.reserve_item(loose))
        assert (held.limits.requests_limit, held.limits.requests_remaining) == (5, left)
    # Now the account has less left than the key, whose own limit would allow one more.
    refused = await client.reserve(client.reserve_item(tight))
    assert (refused.limits.requests_limit, refused.limits.requests_remaining) == (5, 0)
    assert "account" in refused.refusal.message


async def test_a_key_s_limit_is_named_before_its_account_s(client: Client) -> None:
    account, _, _ = await two_keys(client, requests_per_minute=1)
    key = await client.key(account, concurrency=1)
    await client.hold(key)
    refused = (await client.reserve(client.reserve_item(key))).refusal
    assert (refused.limit, refused.message) == ("concurrency", "the key has as many requests open as it may")


async def test_concurrency_over_all_keys_is_exact_under_parallel_calls(client: Client) -> None:
    _, one, other = await two_keys(client, concurrency=3)
    results = await asyncio.gather(*(client.reserve(client.reserve_item(key)) for key in [one, other] * 10))
    held = [result.reservation_id for result in results if result.HasField("reservation")]
    assert len(held) == 3
    assert {result.refusal.limit for result in results if result.HasField("refusal")} == {"concurrency"}
    await client.settle(held[0], 1, 1)
    await client.hold(other)
    assert await limit(client, one) == "concurrency"


@pytest.mark.parametrize(("name", "days"), [("daily_spend", 1), ("monthly_spend", 31)])
async def test_spend_of_all_keys_ends_with_its_window(service: Service, client: Client, name: str, days: int) -> None:
    _, one, other = await two_keys(client, **{name: usd("1.5")})
    held = await client.hold(one)
    assert await limit(client, other) == name
    await client.settle(held, 500_000, 0)
    await client.release(await client.hold(other))
    await client.settle(await client.hold(other), 1, 0)
    assert await limit(client, one) == name
    service.clock.advance(days * 86_400_000)
    await client.hold(one)


async def test_a_call_that_is_refused_while_the_clock_is_ahead_frees_nothing(service: Service, client: Client) -> None:
    account = await client.open_account("10")
    await client.limit_account(account, daily_spend=to_money(USD))
    key = await client.key(account)
    await client.hold(key)
    assert await client.refusal(client.reserve_item(key)) == "LIMIT"
    service.clock.wall += 86_400_000
    assert await client.refusal(client.reserve_item(key, output_limit=600_000)) == "LIMIT"
    service.clock.wall -= 86_400_000
    assert await client.refusal(client.reserve_item(key)) == "LIMIT"


async def test_a_limit_that_is_set_later_knows_what_was_used_before(service: Service, client: Client) -> None:
    account, key, _ = await two_keys(client)
    await client.settle(await client.hold(key), 400_000, 0)
    open_hold = await client.hold(key)
    done = await client.limit_account(account, daily_spend=usd("2.3"), models=[MODEL])
    assert done.status == account_pb2.MUTATION_STATUS_DONE
    assert from_money(done.account.limits.daily_spend) == 2_300_000_000
    # 0.4 charged and 1 held leave 0.9; the hold's settlement gives most of it back, and no more than was counted.
    assert await limit(client, key) == "daily_spend"
    await client.settle(open_hold, 200_000, 0)
    await client.hold(key)
    assert await limit(client, key) == "daily_spend"
    await service.stop()
    client = await service.start()
    assert await limit(client, key) == "daily_spend"
    removed = await client.limit_account(account, remove=["daily_spend"])
    assert not removed.account.limits.HasField("daily_spend")
    assert list(removed.account.limits.models) == [MODEL]
    await client.hold(key)


async def test_a_change_of_limits_is_done_once_and_what_is_wrong_is_named(client: Client) -> None:
    account, _, _ = await two_keys(client, concurrency=4)
    operation_id = client.new_id()
    first = await client.limit_account(account, concurrency=9, operation_id=operation_id)
    await client.limit_account(account, concurrency=1)
    assert await client.limit_account(account, concurrency=9, operation_id=operation_id) == first
    assert (await client.account(account)).limits.concurrency == 1
    other = await client.limit_account(account, concurrency=8, operation_id=operation_id)
    assert (other.status, other.field) == (account_pb2.MUTATION_STATUS_CONFLICT, "limits.concurrency")
    for fields, at_fault in (
        ({"concurrency": -1}, "limits.concurrency"),
        ({"credit_limit": usd("-1")}, "limits.credit_limit"),
        ({"models": [""]}, "limits.models"),
        ({"concurrency": 2, "remove": ["concurrency"]}, "remove"),
        ({"remove": ["speed"]}, "remove"),
        ({}, "limits"),
    ):
        wrong = await client.limit_account(account, **fields)  # type: ignore[arg-type]
        assert (wrong.status, wrong.field) == (account_pb2.MUTATION_STATUS_INVALID, at_fault)
    unknown = await client.limit_account("house_revenue", concurrency=1)
    assert (unknown.status, unknown.field) == (account_pb2.MUTATION_STATUS_NOT_FOUND, "account_id")
    refused = await client.create_account(limits=account_pb2.AccountLimits(daily_spend=usd("-1")))  # type: ignore[arg-type]
    assert refused.field == "limits.daily_spend"
    assert (await client.account(account)).limits.concurrency == 1


async def test_postpaid_goes_as_far_below_zero_as_its_credit_limit(client: Client) -> None:
    account, key, _ = await two_keys(client, "0.5", credit_limit=usd("1.5"))
    assert from_money((await client.account(account)).available) == 2 * USD
    results = await asyncio.gather(*(client.reserve(client.reserve_item(key)) for _ in range(8)))
    held = [result.reservation_id for result in results if result.HasField("reservation")]
    assert len(held) == 2
    assert await client.refusal(client.reserve_item(key)) == "HOLDS_IN_FLIGHT"
    for one in held:
        await client.settle(one, 1_000_000, 0)
    shown = await client.account(account)
    assert (from_money(shown.balance), from_money(shown.available)) == (-1_500_000_000, 0)
    refused = (await client.reserve(client.reserve_item(key))).refusal
    assert refused.reason == pb.REFUSAL_REASON_INSUFFICIENT_CREDIT
    assert from_money(refused.available) == 0
    # Adjustments take what is available, credit included; one more nano is too much.
    assert (await client.adjust(account, "-0.000000001")).status == account_pb2.MUTATION_STATUS_INSUFFICIENT_CREDIT
    await client.credit(account, "1")
    await client.release(await client.hold(key))
    # Without credit nothing is held until the debt is paid, not even for free.
    assert from_money((await client.limit_account(account, remove=["credit_limit"])).account.available) == -USD // 2
    await client.set_price("0", "0")
    assert await client.refusal(client.reserve_item(key)) == "INSUFFICIENT_CREDIT"
    await client.credit(account, "0.5")
    await client.hold(key)
    assert (await client.verify()).ok


async def test_no_credit_limit_makes_an_amount_that_cannot_be_said(client: Client) -> None:
    account, key, _ = await two_keys(client, "9000000000", credit_limit=usd("9000000000"))
    await client.hold(key)
    assert from_money((await client.account(account)).available) == 2**63 - 1 - USD


async def test_the_allow_lists_of_key_and_account_hold_both(client: Client) -> None:
    account, key, _ = await two_keys(client, models=["acme/other", MODEL])
    await client.hold(key)
    _, made = make_key()
    await client.add_key(account, made, models=["acme/other"])

    async def allowed() -> list[str]:
        return list((await client.authorize(made)).models)

    assert await allowed() == ["acme/other"]
    assert await client.refusal(client.reserve_item(made.key_id)) == "MODEL_NOT_ALLOWED"
    await client.limit_account(account, models=["acme/third"])
    # Nothing in common is not everything.
    assert await allowed() == [""]
    refused = (await client.reserve(client.reserve_item(key))).refusal
    assert (refused.reason, refused.message) == (
        pb.REFUSAL_REASON_MODEL_NOT_ALLOWED,
        f"the account may not use the model {MODEL}",
    )


async def test_the_end_of_an_account_is_the_end_of_its_keys(service: Service, client: Client) -> None:
    account, _, _ = await two_keys(client, expires_at=stamp(service.clock.wall + 1_000))
    _, made = make_key()
    await client.add_key(account, made)
    held = await client.hold(made.key_id)
    assert (await client.authorize(made)).status == access_pb2.KEY_STATUS_ACTIVE
    service.clock.advance(1_000)
    ended = await client.authorize(made)
    assert (ended.status, ended.account_id) == (access_pb2.KEY_STATUS_EXPIRED, "")
    assert await client.refusal(client.reserve_item(made.key_id)) == "ACCOUNT_CLOSED"
    # What runs finishes.
    assert (await client.settle(held, 1, 1)).status == pb.SETTLE_STATUS_SETTLED
