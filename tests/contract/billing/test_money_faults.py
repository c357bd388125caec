"""What went wrong with money elsewhere (rows M1, M2, M7, M9 and M10 of the public faults), asked of billing.

Sums are compared with exact fractions."""

import asyncio
import math
from fractions import Fraction

import pytest
from speedinfer.billing.v1 import access_pb2, price_pb2
from speedinfer.billing.v1 import reservation_pb2 as pb

from services.common.money import format_usd, from_money, parse_usd, to_money
from tests.contract.billing.service import BOUNDS, Client, Service

USD = 1_000_000_000
MILLION = 1_000_000


async def usage(client: Client, account: str) -> tuple[int, int]:
    """Requests and their cost, as the account is told."""
    answer = await client.access.GetAccountUsage(access_pb2.GetAccountUsageRequest(account_id=account))
    (model,) = answer.models
    return model.requests, from_money(model.cost)


async def booked(client: Client, account: str) -> list[int]:
    """The charges in the ledger."""
    entries = (await client.entries(account, page_size=1_000)).entries
    return [-from_money(entry.amount) for entry in entries if entry.request_id]


async def test_nobody_is_trusted_for_being_rich(client: Client) -> None:
    """M1: a balance of a million holds, and every one of them is set aside all the same."""
    account = await client.open_account("1000000")
    key = await client.key(account)
    await asyncio.gather(*(client.hold(key) for _ in range(20)))
    assert await client.balance(account) == (1_000_000 * USD, 20 * USD)


@pytest.mark.parametrize("name", ["daily_spend", "monthly_spend"])
@pytest.mark.parametrize(("cap", "admitted"), [("0.000000001", 0), ("0.999999999", 0), ("1", 1), ("3.5", 3)])
async def test_a_first_burst_keeps_within_its_cap(client: Client, name: str, cap: str, admitted: int) -> None:
    """M2: eight calls at once by a key that never called before."""
    account = await client.open_account("100")
    key = await client.key(account, **{name: to_money(parse_usd(cap))})
    results = await asyncio.gather(*(client.reserve(client.reserve_item(key)) for _ in range(8)))
    assert sum(result.HasField("reservation") for result in results) == admitted
    assert {result.refusal.limit for result in results if result.HasField("refusal")} == {name}
    assert await client.balance(account) == (100 * USD, admitted * USD)


async def test_twins_with_one_idempotency_key_are_charged_once(client: Client) -> None:
    """M7: a client that tries again with new ids, all at once, and then once more after it was charged."""
    account = await client.open_account("100")
    key = await client.key(account)
    results = await asyncio.gather(
        *(client.reserve(client.reserve_item(key, idempotency_key="order-1")) for _ in range(20))
    )
    (held,) = [result.reservation_id for result in results if result.HasField("reservation")]
    assert {result.refusal.other_request_id for result in results if result.HasField("refusal")} == {held}
    await client.settle(held, 20, 20)
    again = await client.reserve(client.reserve_item(key, idempotency_key="order-1"))
    assert (again.refusal.reason, again.refusal.other_charged) == (pb.REFUSAL_REASON_DUPLICATE_REQUEST, True)
    assert await client.balance(account) == (100 * USD - 40_000, 0)


@pytest.mark.parametrize(
    ("prompt", "completion", "calls"),
    [
        # Four calls that floats make 0.6619999999999999 of.
        ("0.331", "0", [(500_000, 0)] * 4),
        # 0.0149 USD, which was shown as 0.0.
        ("0.0149", "0", [(1_000_000, 0)]),
        # An eleventh of a nano-USD and more, eleven times.
        ("0.000090909", "0.000000001", [(1, 1)] * 11),
        ("1.40", "4.40", [(27_147, 351), (1, 0), (0, 1), (12, 5)]),
        ("0", "0", [(5, 5)]),
    ],
)
async def test_sums_are_those_of_charges_rounded_up_once_each(
    client: Client, prompt: str, completion: str, calls: list[tuple[int, int]]
) -> None:
    """M9: balance, ledger and report say one sum, to the nano-USD."""
    await client.set_price(prompt, completion)
    account = await client.open_account("1000")
    key = await client.key(account)
    exact = [
        Fraction(parse_usd(prompt) * asked, MILLION) + Fraction(parse_usd(completion) * made, MILLION)
        for asked, made in calls
    ]
    for asked, made in calls:
        await client.settle(await client.hold(key), asked, made)
    charges = [math.ceil(one) for one in exact]
    total = sum(charges)
    assert 0 <= total - sum(exact) < len(calls)
    assert await booked(client, account) == charges
    assert await usage(client, account) == (len(calls), total)
    assert await client.balance(account) == (1_000 * USD - total, 0)
    assert parse_usd(format_usd(total)) == total


async def test_what_was_used_is_never_priced_anew(service: Service, client: Client) -> None:
    """M10: the price changes between reserve and settle, and again between settle and report."""
    account = await client.open_account("100")
    key = await client.key(account)
    held = await client.hold(key)
    await client.set_price("2", "2")
    first = await client.settle(held, 1_000, 500)
    dear = price_pb2.PriceTier(prompt=to_money(9 * USD), completion=to_money(9 * USD))
    await client.set_price(tiers=[dear], bounds=BOUNDS)
    await client.set_price(tiers=[dear], bounds=BOUNDS, account_id=account)
    service.clock.advance(86_400_000)
    assert from_money(first.reservation.charge) == 1_500_000
    assert from_money((await client.request(account, held)).charge) == 1_500_000
    assert await client.settle(held, 1_000, 500) == first
    assert await usage(client, account) == (1, 1_500_000)
    assert await booked(client, account) == [1_500_000]
    assert (await client.verify()).ok
