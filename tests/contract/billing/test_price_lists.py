"""A list of prices that is set as a whole."""

from speedinfer.billing.v1 import account_pb2, price_pb2

from services.common.money import from_money, parse_usd, to_money
from tests.contract.billing.service import ADMIN, BOUNDS, MODEL, Client, stamp

USD = 1_000_000_000


def item(client: Client, usd: str = "2", model: str = MODEL, **fields: object) -> price_pb2.SetPriceItem:
    money = to_money(parse_usd(usd))
    tier = price_pb2.PriceTier(prompt=money, completion=money)
    made = price_pb2.SetPriceItem(operation_id=client.new_id(), model=model, tiers=[tier], bounds=BOUNDS)
    made.MergeFrom(price_pb2.SetPriceItem(**fields))  # type: ignore[arg-type]
    return made


def words(results: list[object]) -> list[str]:
    return [account_pb2.MutationStatus.Name(one.status).removeprefix("MUTATION_STATUS_") for one in results]  # type: ignore[attr-defined]


async def versions(client: Client) -> int:
    question = price_pb2.ListPricesRequest(include_past=True)
    return len((await client.prices.ListPrices(question, metadata=ADMIN)).prices)


async def test_one_wrong_price_is_none_set_and_every_wrong_one_is_named(client: Client) -> None:
    key = await client.key(await client.open_account("9"))
    assert client.clock is not None
    good, past = item(client, "3"), item(client, "4", effective_from=stamp(client.clock.wall - 60_000))
    nobody = item(client, "5", account_id="acct_none")
    results = await client.set_price_list(good, past, nobody, item(client, "6", "acme/model-2"))
    assert words(results) == ["NOT_DONE", "INVALID", "NOT_FOUND", "NOT_DONE"]
    assert [one.field for one in results] == ["", "effective_from", "account_id", ""]
    assert await versions(client) == 1
    held = (await client.reserve(client.reserve_item(key))).reservation
    assert from_money(held.hold) == USD
    # What was not done may be sent again with its id, and is done then.
    assert words(await client.set_price_list(good)) == ["DONE"]
    held = (await client.reserve(client.reserve_item(key))).reservation
    assert from_money(held.hold) == 3 * USD


async def test_a_list_is_set_once_and_what_stands_is_not_taken_back(client: Client) -> None:
    listed = [item(client, "3"), item(client, "4", "acme/model-2")]
    first = await client.set_price_list(*listed)
    assert words(first) == ["DONE", "DONE"]
    assert await client.set_price_list(*listed) == first
    mixed = await client.set_price_list(listed[0], item(client, "-1"), item(client, "5"))
    assert words(mixed) == ["DONE", "INVALID", "NOT_DONE"]
    assert await versions(client) == 3
    key = await client.key(await client.open_account("9"))
    assert from_money((await client.reserve(client.reserve_item(key))).reservation.hold) == 3 * USD


async def test_a_later_price_of_a_list_takes_over_the_bounds_of_an_earlier_one(client: Client) -> None:
    later = price_pb2.SetPriceItem(operation_id=client.new_id(), model="acme/model-2", tiers=item(client).tiers)
    results = await client.set_price_list(item(client, model="acme/model-2"), later)
    assert words(results) == ["DONE", "DONE"]
    assert results[1].price.bounds == results[0].price.bounds
