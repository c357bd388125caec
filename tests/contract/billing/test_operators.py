"""Accounts, keys, prices and reports over gRPC, and the gate before them."""

import grpc
import pytest
from speedinfer.billing.v1 import access_pb2, account_pb2, key_pb2, price_pb2, report_pb2, reservation_pb2

from services.common.apikey import make_key
from services.common.ids import uuid7
from services.common.money import from_money, parse_usd, to_money
from tests.contract.billing.service import ADMIN, BOUNDS, MODEL, Client, Service, stamp, status_of

USD = 1_000_000_000
CREDIT, CHARGE, ADJUSTMENT = (
    report_pb2.ENTRY_KIND_CREDIT,
    report_pb2.ENTRY_KIND_CHARGE,
    report_pb2.ENTRY_KIND_ADJUSTMENT,
)


def word(result: object) -> str:
    """The status of a mutation."""
    return account_pb2.MutationStatus.Name(result.status).removeprefix("MUTATION_STATUS_")  # type: ignore[attr-defined]


async def test_operators_need_their_token_and_the_edge_needs_none(client: Client) -> None:
    for call in (
        client.accounts.ListAccounts(account_pb2.ListAccountsRequest()),
        client.keys.ListKeys(key_pb2.ListKeysRequest(), metadata=(("authorization", "Bearer wrong"),)),
        client.prices.ListPrices(price_pb2.ListPricesRequest()),
        client.reports.VerifyLedger(report_pb2.VerifyLedgerRequest()),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert status_of(caught.value) == "UNAUTHENTICATED"
    assert (await client.reservations.Reserve(reservation_pb2.ReserveRequest())).results == []


async def test_accounts_are_opened_once_by_operation_id(client: Client) -> None:
    operation_id = client.new_id()
    first = await client.create_account("9.999994600", operation_id=operation_id)
    assert word(first) == "DONE"
    assert from_money(first.account.balance) == 9_999_994_600
    await client.credit(first.account.account_id, "1")
    assert await client.create_account("9.999994600", operation_id=operation_id) == first
    conflict = await client.create_account("9.9", operation_id=operation_id)
    assert (word(conflict), conflict.field) == ("CONFLICT", "credit.nanos")
    renamed = await client.create_account("9.999994600", operation_id=operation_id, name="Other")
    assert (word(renamed), renamed.field) == ("CONFLICT", "name")
    other_kind = await client.credit(first.account.account_id, "1", operation_id=operation_id)
    assert (word(other_kind), other_kind.field) == ("CONFLICT", "operation_id")
    listed = (await client.accounts.ListAccounts(account_pb2.ListAccountsRequest(), metadata=ADMIN)).accounts
    assert [account.account_id for account in listed] == [first.account.account_id]


async def test_what_is_wrong_with_a_mutation_is_named(client: Client) -> None:
    account = await client.open_account("1")
    for result, status, field in (
        (await client.create_account(name="  "), "INVALID", "name"),
        (await client.create_account(name="a\x1b[31mb"), "INVALID", "name"),
        (await client.set_price(model="m\x9bx"), "INVALID", "model"),
        (await client.create_account("-1"), "INVALID", "credit"),
        (await client.create_account(operation_id="x"), "INVALID", "operation_id"),
        (await client.create_account(operation_id=uuid7(0)), "ID_EXPIRED", "operation_id"),
        (await client.credit(account, "0"), "INVALID", "amount"),
        (await client.credit(account, "9223372036"), "INVALID", "amount"),
        (await client.credit("acct_none", "1"), "NOT_FOUND", "account_id"),
        (await client.credit("house_outside", "1"), "NOT_FOUND", "account_id"),
        (await client.adjust(account, "0"), "INVALID", "amount"),
        (await client.adjust(account, "1", reason=" "), "INVALID", "reason"),
        (await client.adjust(account, "1", request_id=client.new_id()), "NOT_FOUND", "request_id"),
        (await client.adjust(account, "-1.000000001"), "INSUFFICIENT_CREDIT", "amount"),
        (await client.create_key("acct_none"), "NOT_FOUND", "account_id"),
        (await client.create_key(account, concurrency=-1), "INVALID", "limits.concurrency"),
        (await client.set_price("-1"), "INVALID", "tiers[0].prompt"),
        (await client.set_price("100001"), "INVALID", "tiers[0].prompt"),
        (await client.set_price(tiers=[]), "INVALID", "tiers"),
        (await client.set_price(tiers=[price_pb2.PriceTier()]), "INVALID", "tiers[0].prompt"),
        (await client.set_price(account_id="acct_none"), "NOT_FOUND", "account_id"),
        (await client.set_price(bounds={"max_output_tokens": 0}), "INVALID", "bounds.max_output_tokens"),
        (
            await client.set_price(effective_from=stamp(client.clock.wall - 5_001)),  # type: ignore[union-attr]
            "INVALID",
            "effective_from",
        ),
    ):
        assert (word(result), result.field) == (status, field)
        assert result.message
    assert await client.balance(account) == (USD, 0)


async def test_an_adjustment_takes_at_most_what_is_available(client: Client) -> None:
    account = await client.open_account("3")
    held = await client.hold(await client.key(account))
    assert word(await client.adjust(account, "-2.5")) == "INSUFFICIENT_CREDIT"
    taken = await client.adjust(account, "-2", request_id=held)
    assert (word(taken), from_money(taken.account.available)) == ("DONE", 0)
    assert word(await client.adjust(account, "0.1")) == "DONE"


async def test_the_ledger_lists_an_account_s_own_legs(client: Client) -> None:
    account = await client.open_account("2")
    key = await client.key(account)
    charged = await client.hold(key)
    await client.settle(charged, 10, 5, cached=4)
    free = await client.hold(key)
    await client.settle(free, 0, 0)
    await client.adjust(account, "-0.5", reason="a gift taken back")
    entries = (await client.entries(account)).entries
    assert [(entry.kind, from_money(entry.amount)) for entry in entries] == [
        (CREDIT, 2 * USD),
        (CHARGE, -15_000),
        (CHARGE, 0),
        (ADJUSTMENT, -USD // 2),
    ]
    charge = entries[1]
    assert (charge.request_id, charge.key_id, charge.model, charge.worker_id) == (charged, key, MODEL, "w-1")
    assert (charge.usage.prompt_tokens, charge.usage.cached_prompt_tokens, charge.usage.completion_tokens) == (10, 4, 5)
    assert from_money(charge.balance) == 2 * USD - 15_000
    assert entries[3].note == "a gift taken back"
    pages, token = [], ""
    while True:
        page = await client.entries(account, page_size=3, page_token=token)
        pages += page.entries
        if not (token := page.next_page_token):
            break
    assert pages == list(entries)
    usage = await client.access.GetAccountUsage(access_pb2.GetAccountUsageRequest(account_id=account))
    (model,) = usage.models
    assert (model.model, model.requests, model.prompt_tokens, model.completion_tokens) == (MODEL, 2, 10, 5)
    assert from_money(model.cost) == 15_000
    report = await client.reports.GetUsage(report_pb2.GetUsageRequest(account_id=account), metadata=ADMIN)
    assert report.models == usage.models


async def test_one_account_does_not_see_another_s_request(client: Client) -> None:
    account, other = await client.open_account("2"), await client.open_account("2")
    held = await client.hold(await client.key(account))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.request(other, held)
    assert status_of(caught.value) == "NOT_FOUND"
    assert (await client.request(account, held)).state == reservation_pb2.RESERVATION_STATE_HELD
    everything = report_pb2.ListReservationsRequest(states=[reservation_pb2.RESERVATION_STATE_HELD])
    found = (await client.reports.ListReservations(everything, metadata=ADMIN)).reservations
    assert [one.reservation_id for one in found] == [held]


async def test_keys_are_known_by_their_hash_until_revoked_or_expired(service: Service, client: Client) -> None:
    account = await client.open_account("5")
    _, made = make_key()
    item = key_pb2.CreateKeyItem(
        operation_id=client.new_id(), account_id=account, key_id=made.key_id, key_sha256=made.sha256
    )
    create = key_pb2.CreateKeysRequest(items=[item])
    first = (await client.keys.CreateKeys(create, metadata=ADMIN)).results[0]
    assert (await client.keys.CreateKeys(create, metadata=ADMIN)).results[0] == first
    taken = key_pb2.CreateKeyItem(
        operation_id=client.new_id(), account_id=account, key_id=made.key_id, key_sha256=bytes(32)
    )
    refused = (await client.keys.CreateKeys(key_pb2.CreateKeysRequest(items=[taken]), metadata=ADMIN)).results[0]
    assert (word(refused), refused.field) == ("INVALID", "key_id")

    async def judge(key_id: str, sha256: bytes) -> tuple[str, str]:
        request = access_pb2.AuthorizeKeysRequest(items=[access_pb2.PresentedKey(key_id=key_id, key_sha256=sha256)])
        (answer,) = (await client.access.AuthorizeKeys(request)).results
        return access_pb2.KeyStatus.Name(answer.status).removeprefix("KEY_STATUS_"), answer.account_id

    assert await judge(made.key_id, made.sha256) == ("ACTIVE", account)
    assert await judge(made.key_id, bytes(32)) == ("UNKNOWN", "")
    assert await judge("key_none", made.sha256) == ("UNKNOWN", "")
    _, successor = make_key()
    rotate = key_pb2.RotateKeyItem(
        operation_id=client.new_id(),
        key_id=made.key_id,
        new_key_id=successor.key_id,
        new_key_sha256=successor.sha256,
        grace_ms=1_000,
    )
    rotated = (await client.keys.RotateKeys(key_pb2.RotateKeysRequest(items=[rotate]), metadata=ADMIN)).results[0]
    assert (rotated.key.key_id, rotated.key.replaces_key_id) == (successor.key_id, made.key_id)
    assert await judge(made.key_id, made.sha256) == ("ACTIVE", account)
    service.clock.advance(1_000)
    assert await judge(made.key_id, made.sha256) == ("EXPIRED", "")
    assert await client.refusal(client.reserve_item(made.key_id)) == "INVALID_KEY"
    assert word(await client.revoke(successor.key_id)) == "DONE"
    assert await judge(successor.key_id, successor.sha256) == ("REVOKED", "")
    listed = (await client.keys.ListKeys(key_pb2.ListKeysRequest(account_id=account), metadata=ADMIN)).keys
    assert [key.key_id for key in listed] == [made.key_id, successor.key_id]


async def test_the_price_is_fixed_at_reserve(service: Service, client: Client) -> None:
    key = await client.key(await client.open_account("10"))
    before = await client.hold(key)
    await client.set_price("2", "2")
    after = await client.hold(key)
    assert from_money((await client.settle(before, 10, 0)).reservation.charge) == 10_000
    assert from_money((await client.settle(after, 10, 0)).reservation.charge) == 20_000
    assert (await client.verify()).ok


async def test_a_price_applies_from_its_moment_and_an_account_s_own_wins(service: Service, client: Client) -> None:
    account, other = await client.open_account("10"), await client.open_account("10")
    key, other_key = await client.key(account), await client.key(other)
    soon = service.clock.wall + 1_000
    general = await client.set_price("3", "3", effective_from=stamp(soon))
    own = await client.set_price("0", "0", account_id=account, effective_from=stamp(soon), bounds=None)
    assert own.price.bounds == general.price.bounds

    async def hold_of(key_id: str) -> int:
        return from_money((await client.reserve(client.reserve_item(key_id))).reservation.hold)

    assert [await hold_of(key), await hold_of(other_key)] == [USD, USD]
    service.clock.advance(1_000)
    assert [await hold_of(key), await hold_of(other_key)] == [0, 3 * USD]
    question = price_pb2.ListPricesRequest(model=MODEL)
    current = (await client.prices.ListPrices(question, metadata=ADMIN)).prices
    assert {price.version for price in current} == {general.price.version, own.price.version}
    question = price_pb2.ListPricesRequest(include_past=True, page_size=2)
    page = await client.prices.ListPrices(question, metadata=ADMIN)
    question.page_token = page.next_page_token
    rest = await client.prices.ListPrices(question, metadata=ADMIN)
    assert len({price.version for price in (*page.prices, *rest.prices)}) == 3
    assert rest.next_page_token == ""


async def test_bounds_that_are_not_given_stay_as_they_were(client: Client) -> None:
    lower = await client.set_price(bounds={"max_output_tokens": 100, "image_tokens": 7})
    assert (lower.price.bounds.template_request_tokens, lower.price.bounds.default_output_tokens) == (0, 100)
    kept = await client.set_price(bounds=None)
    assert kept.price.bounds == lower.price.bounds
    fresh = await client.set_price(model="acme/model-2", bounds=None)
    bounds = fresh.price.bounds
    assert (bounds.max_output_tokens, bounds.default_output_tokens, bounds.tokens_per_byte) == (4096, 1024, 1)
    assert (bounds.template_request_tokens, bounds.tools_request_tokens) == (32, 512)
    assert not bounds.HasField("image_tokens")


async def test_tiers_follow_the_reported_prompt(client: Client) -> None:
    def tier(start: int, usd: str, cached: str) -> price_pb2.PriceTier:
        money = to_money(parse_usd(usd))
        return price_pb2.PriceTier(
            from_prompt_tokens=start, prompt=money, completion=money, cached_prompt=to_money(parse_usd(cached))
        )

    await client.set_price(tiers=[tier(0, "1", "0.5"), tier(1_000, "2", "1")], bounds=BOUNDS)
    key = await client.key(await client.open_account("10"))
    item = client.reserve_item(key)
    assert from_money((await client.reserve(item)).reservation.hold) == 2 * USD
    assert from_money((await client.settle(item.reservation_id, 999, 0, cached=99)).reservation.charge) == 949_500
    dear = await client.hold(key)
    assert from_money((await client.settle(dear, 1_000, 1)).reservation.charge) == 2_002_000


async def test_a_call_with_too_many_items_is_refused(client: Client) -> None:
    items = [reservation_pb2.RenewItem(reservation_id=client.new_id())] * 1_025
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.reservations.Renew(reservation_pb2.RenewRequest(items=items))
    assert status_of(caught.value) == "INVALID_ARGUMENT"


async def test_finance_finds_whose_ledgers_there_are(client: Client) -> None:
    made = sorted([await client.open_account("1") for _ in range(3)])
    found: list[str] = []
    question = report_pb2.ListAccountIdsRequest(page_size=2)
    while True:
        page = await client.reports.ListAccountIds(question, metadata=ADMIN)
        assert 0 < len(page.account_ids) <= 2
        found += page.account_ids
        if not page.next_page_token:
            break
        question.page_token = page.next_page_token
    assert found == made
