"""Reserve, renew, settle, release over gRPC: what each answers in each state, and what it does to the books."""

import asyncio

import pytest
from speedinfer.billing.v1 import reservation_pb2 as pb
from speedinfer.common.v1 import operation_pb2

from services.common.ids import uuid7
from services.common.money import from_money
from tests.contract.billing.service import MODEL, Client, Service, of_request

USD = 1_000_000_000


async def test_a_request_is_held_settled_and_charged(client: Client) -> None:
    account = await client.open_account("10")
    key = await client.key(account)
    reserved = await client.reserve(client.reserve_item(key))
    assert from_money(reserved.reservation.hold) == USD
    assert reserved.reservation.output_limit == 500_000
    assert reserved.reservation.lease_ms == 60_000
    assert not reserved.HasField("limits")
    assert await client.balance(account) == (10 * USD, USD)
    settled = await client.settle(reserved.reservation_id, 12, 5)
    assert settled.status == pb.SETTLE_STATUS_SETTLED
    assert from_money(settled.reservation.charge) == 17_000
    assert from_money(settled.balance) == 10 * USD - 17_000
    assert await client.balance(account) == (10 * USD - 17_000, 0)
    kept = await client.request(account, reserved.reservation_id)
    assert (kept.worker_id, kept.attempts, kept.ending, kept.overrun) == ("w-1", 1, pb.ENDING_COMPLETED, False)
    assert (await client.verify()).ok


async def test_the_checks_of_the_contract(client: Client) -> None:
    account = await client.open_account("10")
    key = await client.key(account)
    await client.set_price("0.20", "0.60")
    settled = await client.settle(await client.hold(key), 12, 5)
    assert from_money(settled.reservation.charge) == 5_400
    assert from_money(settled.balance) == 9_999_994_600


async def test_repeats_get_the_same_answer_and_other_content_a_conflict(client: Client) -> None:
    account = await client.open_account("10")
    key = await client.key(account)
    item = client.reserve_item(key, idempotency_key="once")
    first, again = await client.reserve(item), await client.reserve(item)
    assert first == again
    changed = pb.ReserveItem()
    changed.CopyFrom(item)
    changed.prompt.text_bytes += 1
    refused = await client.reserve(changed)
    assert refused.refusal.reason == pb.REFUSAL_REASON_CONFLICT
    assert refused.refusal.field == "prompt.text_bytes"
    settled = await client.settle(item.reservation_id, 10, 1)
    await client.credit(account, "1")
    assert await client.settle(item.reservation_id, 10, 1) == settled
    for wrong, field in (
        ((11, 1, {}), "usage.prompt_tokens"),
        ((10, 2, {}), "usage.completion_tokens"),
        ((10, 1, {"cached": 0}), "usage.cached_prompt_tokens"),
        ((10, 1, {"worker_id": "w-2"}), "worker_id"),
        ((10, 1, {"attempts": 2}), "attempts"),
        ((10, 1, {"ending": pb.ENDING_DEADLINE}), "ending"),
    ):
        prompt, completion, more = wrong
        conflict = await client.settle(item.reservation_id, prompt, completion, **more)
        assert (conflict.status, conflict.field) == (pb.SETTLE_STATUS_CONFLICT, field)
    closed = await client.reserve(item)
    assert closed.reservation.state == pb.RESERVATION_STATE_SETTLED
    assert closed.reservation.charge == settled.reservation.charge
    assert await client.release(item.reservation_id) == "CONFLICT"
    assert await client.renew(item.reservation_id) == ("CLOSED", 0)
    assert await client.balance(account) == (11 * USD - 11_000, 0)


async def test_a_repeat_is_answered_even_when_its_key_is_revoked(client: Client) -> None:
    key = await client.key(await client.open_account("10"))
    item = client.reserve_item(key)
    await client.reserve(item)
    await client.revoke(key)
    assert (await client.reserve(item)).reservation.state == pb.RESERVATION_STATE_HELD
    assert await client.refusal(client.reserve_item(key)) == "INVALID_KEY"


async def test_an_id_that_billing_does_not_know(client: Client) -> None:
    key = await client.key(await client.open_account("10"))
    unknown = client.new_id()
    assert (await client.settle(unknown, 1, 1)).status == pb.SETTLE_STATUS_UNKNOWN
    assert await client.renew(unknown) == ("UNKNOWN", 0)
    # A release that overtakes its reserve closes the id for good.
    assert await client.release(unknown) == "RELEASED"
    late = await client.reserve(client.reserve_item(key, reservation_id=unknown))
    assert late.reservation.state == pb.RESERVATION_STATE_RELEASED
    assert (await client.settle(unknown, 1, 1)).status == pb.SETTLE_STATUS_CONFLICT
    assert (await client.verify()).ok


async def test_a_released_hold_is_given_back_and_takes_no_charge(client: Client) -> None:
    account = await client.open_account("10")
    item = client.reserve_item(await client.key(account))
    await client.reserve(item)
    assert await client.release(item.reservation_id) == "RELEASED"
    assert await client.release(item.reservation_id) == "RELEASED"
    assert (await client.settle(item.reservation_id, 1, 1)).status == pb.SETTLE_STATUS_CONFLICT
    assert (await client.reserve(item)).reservation.state == pb.RESERVATION_STATE_RELEASED
    assert await client.balance(account) == (10 * USD, 0)
    kept = await client.request(account, item.reservation_id)
    assert (kept.cause, kept.worker_id, kept.attempts) == ("upstream_error", "w9", 2)


async def test_an_expired_hold_takes_a_late_charge(service: Service, client: Client) -> None:
    account = await client.open_account("1")
    item = client.reserve_item(await client.key(account))
    await client.reserve(item)
    assert await service.pass_time(59) == 0
    assert await service.pass_time(1) == 1
    assert (await client.reserve(item)).reservation.state == pb.RESERVATION_STATE_EXPIRED
    assert await client.release(item.reservation_id) == "EXPIRED"
    assert await client.renew(item.reservation_id) == ("CLOSED", 0)
    await client.adjust(account, "-1")
    late = await client.settle(item.reservation_id, 500_000, 1)
    assert late.status == pb.SETTLE_STATUS_LATE
    assert late.reservation.state == pb.RESERVATION_STATE_LATE
    assert from_money(late.balance) == -500_001_000
    assert await client.settle(item.reservation_id, 500_000, 1) == late
    assert await client.release(item.reservation_id) == "CONFLICT"
    assert await client.balance(account) == (-500_001_000, 0)
    assert (await client.verify()).ok


async def test_usage_that_is_missing_or_impossible_is_not_charged(client: Client) -> None:
    account = await client.open_account("10")
    key = await client.key(account)
    held = await client.hold(key)
    for prompt, completion, more, field in (
        (None, 1, {}, "usage.prompt_tokens"),
        (1, None, {}, "usage.completion_tokens"),
        (-1, 1, {}, "usage.prompt_tokens"),
        (1, 2**31, {}, "usage.completion_tokens"),
        (1, 1, {"cached": -1}, "usage.cached_prompt_tokens"),
    ):
        result = await client.settle(held, prompt, completion, **more)
        assert (result.status, result.field) == (pb.SETTLE_STATUS_INVALID, field)
    assert await client.balance(account) == (10 * USD, USD)
    embedding = await client.hold(key, operation=operation_pb2.OPERATION_EMBEDDING)
    assert (await client.settle(embedding, 7, None)).status == pb.SETTLE_STATUS_SETTLED
    assert await client.balance(account) == (10 * USD - 7_000, USD)


async def test_more_cached_than_prompt_tokens_are_all_of_the_prompt(client: Client) -> None:
    settled = await client.settle(
        await client.hold(await client.key(await client.open_account("10"))), 10, 1, cached=99
    )
    assert settled.reservation.usage.cached_prompt_tokens == 10


async def test_an_overrun_is_charged_and_recorded(client: Client) -> None:
    account = await client.open_account("1")
    key = await client.key(account)
    settled = await client.settle(await client.hold(key), 1_500_000, 0)
    assert settled.reservation.overrun
    assert from_money(settled.balance) == -USD // 2
    # Nothing is held below zero, not even for free.
    await client.set_price("0", "0")
    assert await client.refusal(client.reserve_item(key)) == "INSUFFICIENT_CREDIT"
    await client.credit(account, "0.5")
    assert from_money((await client.reserve(client.reserve_item(key))).reservation.hold) == 0


async def test_a_count_in_place_of_the_bound_is_held_and_a_refusal_says_whether_it_may_help(client: Client) -> None:
    account = await client.open_account("1")
    key = await client.key(account)
    # A million bytes at USD 1 per million tokens, and a few for the template: just over the credit.
    long = {"prompt": pb.PromptSize(text_bytes=1_000_000), "output_limit": 1}
    refused = await client.reserve(client.reserve_item(key, **long))
    assert refused.refusal.reason == pb.REFUSAL_REASON_INSUFFICIENT_CREDIT
    assert refused.refusal.count_may_help
    counted = client.reserve_item(key, **long, counted_prompt_tokens=250_000)
    held = await client.reserve(counted)
    assert from_money(held.reservation.hold) < USD // 3
    # By the count no longer, and of no use where the answer alone is over the credit.
    again = await client.reserve(client.reserve_item(key, **long, counted_prompt_tokens=2_000_000))
    assert again.refusal.reason == pb.REFUSAL_REASON_INSUFFICIENT_CREDIT
    assert not again.refusal.count_may_help
    dear = await client.reserve(client.reserve_item(key, prompt=long["prompt"], sequences=1024))
    assert dear.refusal.reason == pb.REFUSAL_REASON_INSUFFICIENT_CREDIT
    assert not dear.refusal.count_may_help
    # More than was counted is charged all the same: settlement never refuses.
    settled = await client.settle(counted.reservation_id, 1_500_000, 0)
    assert settled.reservation.overrun
    assert from_money(settled.balance) < 0


async def test_an_open_hold_is_closed_however_old_its_id_is(service: Service, client: Client) -> None:
    account = await client.open_account("10")
    key = await client.key(account)
    kept_ms = 90 * 86_400_000
    nearly = [uuid7(service.clock.wall - kept_ms) for _ in range(3)]
    items = [client.reserve_item(key, reservation_id=name) for name in nearly]
    for item in items:
        await client.reserve(item)
    settled, released, lapsed = nearly
    service.clock.advance(1)
    assert (await client.reserve(items[0])).reservation.state == pb.RESERVATION_STATE_HELD
    first = await client.settle(settled, 10, 5)
    assert (first.status, await client.release(released)) == (pb.SETTLE_STATUS_SETTLED, "RELEASED")
    await service.pass_time(61)
    assert (await client.settle(lapsed, 10, 5)).status == pb.SETTLE_STATUS_LATE
    assert await client.settle(settled, 10, 5) == first
    service.clock.advance(kept_ms)
    assert (await client.settle(settled, 10, 5)).status == pb.SETTLE_STATUS_ID_EXPIRED
    assert await client.release(released) == "ID_EXPIRED"
    assert await client.balance(account) == (10_000_000_000 - 30_000, 0)


async def test_refusals_come_in_their_order(client: Client) -> None:
    empty, other = await client.open_account(), await client.open_account("5")
    key = await client.key(empty, models=[MODEL, "unpriced"], requests_per_minute=0)
    item = client.reserve_item(key, idempotency_key="k")
    bad = client.reserve_item(key, reservation_id=uuid7(0), operation=operation_pb2.OPERATION_UNSPECIFIED)
    assert await client.refusal(bad) == "INVALID"
    assert await client.refusal(client.reserve_item(key, reservation_id=uuid7(0))) == "ID_EXPIRED"
    assert await client.refusal(client.reserve_item("key_none", model="unheard-of")) == "INVALID_KEY"
    assert await client.refusal(client.reserve_item(key, model="unheard-of")) == "MODEL_NOT_ALLOWED"
    assert await client.refusal(client.reserve_item(key, model="unpriced")) == "MODEL_NOT_PRICED"
    assert await client.refusal(item) == "LIMIT"
    poor = await client.key(empty)
    refused = await client.reserve(client.reserve_item(poor))
    assert refused.refusal.reason == pb.REFUSAL_REASON_INSUFFICIENT_CREDIT
    assert (from_money(refused.refusal.hold), from_money(refused.refusal.available)) == (USD, 0)
    # What was refused for its balance is not stored: with credit the very same item is held.
    await client.credit(empty, "1")
    assert (await client.reserve(client.reserve_item(poor, idempotency_key="k"))).HasField("reservation")
    assert await client.refusal(client.reserve_item(poor, idempotency_key="k")) == "DUPLICATE_REQUEST"
    assert await client.refusal(client.reserve_item(poor)) == "HOLDS_IN_FLIGHT"
    assert await client.refusal(client.reserve_item(poor, sequences=2)) == "INSUFFICIENT_CREDIT"
    assert (await client.reserve(client.reserve_item(await client.key(other), idempotency_key="k"))).HasField(
        "reservation"
    )


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"reservation_id": "not-a-uuid"}, "reservation_id"),
        ({"reservation_id": uuid7(1_800_000_000_000 + 6 * 60_000)}, "reservation_id"),
        ({"context": of_request(uuid7(1_800_000_000_000))}, "context.request_id"),
        ({"context": of_request("", remaining_ms=-1)}, "context.remaining_ms"),
        ({"model": ""}, "model"),
        ({"prompt": pb.PromptSize(text_bytes=-1)}, "prompt.text_bytes"),
        ({"prompt": pb.PromptSize(images=1)}, "prompt.images"),
        ({"output_limit": 0}, "output_limit"),
        ({"counted_prompt_tokens": 2**31}, "counted_prompt_tokens"),
    ],
)
async def test_impossible_values_are_named(client: Client, fields: dict[str, object], field: str) -> None:
    key = await client.key(await client.open_account("10"))
    result = await client.reserve(client.reserve_item(key, **fields))
    assert (result.refusal.reason, result.refusal.field) == (pb.REFUSAL_REASON_INVALID, field)


async def test_an_idempotency_key_is_free_after_release_and_expiry(service: Service, client: Client) -> None:
    key = await client.key(await client.open_account("10"))
    first = await client.hold(key, idempotency_key="k")
    refused = await client.reserve(client.reserve_item(key, idempotency_key="k"))
    assert refused.refusal.other_request_id == first
    assert not refused.refusal.other_charged
    await client.release(first)
    second = await client.hold(key, idempotency_key="k")
    await service.pass_time(60)
    third = await client.hold(key, idempotency_key="k")
    # The late charge stands although its idempotency key has another bearer by now.
    assert (await client.settle(second, 1, 1)).status == pb.SETTLE_STATUS_LATE
    await client.settle(third, 1, 1)
    refused = await client.reserve(client.reserve_item(key, idempotency_key="k"))
    assert refused.refusal.other_request_id == third
    assert refused.refusal.other_charged


@pytest.mark.parametrize(("callers", "affordable"), [(20, 1), (64, 13)])
async def test_parallel_reserves_on_credit_for_exactly_so_many(client: Client, callers: int, affordable: int) -> None:
    account = await client.open_account(str(affordable))
    key = await client.key(account)
    results = await asyncio.gather(*(client.reserve(client.reserve_item(key)) for _ in range(callers)))
    held = [result for result in results if result.HasField("reservation")]
    assert len(held) == affordable
    assert {result.refusal.reason for result in results if result.HasField("refusal")} == {
        pb.REFUSAL_REASON_HOLDS_IN_FLIGHT
    }
    assert await client.balance(account) == (affordable * USD, affordable * USD)
    assert (await client.verify()).ok


async def test_the_items_of_one_call_are_done_in_order_and_do_not_share_their_fate(client: Client) -> None:
    account = await client.open_account("1")
    key = await client.key(account)
    items = [client.reserve_item(key), client.reserve_item("key_none"), client.reserve_item(key)]
    results = (await client.reservations.Reserve(pb.ReserveRequest(items=[*items, items[0]]))).results
    assert [result.WhichOneof("outcome") for result in results] == ["reservation", "refusal", "refusal", "reservation"]
    assert [result.reservation_id for result in results[:3]] == [item.reservation_id for item in items]
    assert results[0] == results[3]


async def test_an_idempotency_key_within_one_batch(service: Service, client: Client) -> None:
    key = await client.key(await client.open_account("10"))
    expired = await client.hold(key, idempotency_key="k")
    await service.pass_time(60)
    first, second = (client.reserve_item(key, idempotency_key="k") for _ in range(2))
    both = (await client.reservations.Reserve(pb.ReserveRequest(items=[first, second]))).results
    assert both[1].refusal.other_request_id == first.reservation_id
    # Released and taken again, with whatever order the calls share a commit in.
    released, again = await asyncio.gather(client.release(first.reservation_id), client.reserve(second))
    assert released == "RELEASED"
    again = await client.reserve(second)
    assert again.reservation.state == pb.RESERVATION_STATE_HELD
    await client.release(second.reservation_id)
    assert (await client.settle(expired, 1, 1)).status == pb.SETTLE_STATUS_LATE
    refused = await client.reserve(client.reserve_item(key, idempotency_key="k"))
    assert (refused.refusal.other_request_id, refused.refusal.other_charged) == (expired, True)


async def test_duplicates_in_one_settle_call_are_charged_once(client: Client) -> None:
    account = await client.open_account("1")
    held = await client.hold(await client.key(account))
    answers = await asyncio.gather(*(client.settle(held, 10, 5) for _ in range(20)))
    assert {answer.status for answer in answers} == {pb.SETTLE_STATUS_SETTLED}
    assert await client.balance(account) == (USD - 15_000, 0)
    assert len((await client.entries(account)).entries) == 2
