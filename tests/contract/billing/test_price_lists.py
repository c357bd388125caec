"""A list of prices that is set as a whole."""

from dataclasses import dataclass

from google.protobuf.wrappers_pb2 import BoolValue
from speedinfer.billing.v1 import account_pb2, price_pb2

from services.billing.books import Books
from services.billing.engine import Engine
from services.billing.lease import Leases
from services.billing.metrics import Metrics
from services.billing.operations.price import SetPrice, SetPriceList
from services.billing.rules import Rules
from services.billing.store.open import open_store
from services.billing.store.port import Names
from services.common.money import from_money, parse_usd, to_money
from tests.contract.billing.service import ADMIN, BOUNDS, MODEL, Client, MovedClock, stamp

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


@dataclass(frozen=True)
class Priced:
    """Whether a batch sees a price of the model by then."""

    def name(self, names: Names) -> None:
        """Nothing."""

    def apply(self, books: Books) -> BoolValue:
        return BoolValue(value=books.price_now(MODEL, "") is not None)


async def test_what_a_list_did_not_do_is_not_known_to_the_rest_of_its_batch(database: str) -> None:
    clock = MovedClock()
    client = Client(1, clock)
    store = open_store(database, clock.wall_ms)
    engine = Engine(store, Leases(60_000), clock, Metrics(), max_queue=10, max_batch=10)
    engine.start()
    good, bad, rules = item(client), item(client, "-1"), Rules()

    def listed(*items: price_pb2.SetPriceItem) -> SetPriceList:
        return SetPriceList([SetPrice(one, rules) for one in items])

    answers = await engine.submit(
        [listed(good, bad), Priced(), listed(item(client, "3", "acme/model-2")), listed(good), Priced()]
    )
    await engine.stop()
    reader = store.reader()
    assert {price.model for _, price in reader.prices("", None, 0, 10)} == {MODEL, "acme/model-2"}
    reader.close()
    store.close()
    await client.channel.close()
    assert answers is not None
    assert words(answers[0].results) == ["NOT_DONE", "INVALID"]
    assert (answers[1].value, answers[4].value) == (False, True)
    assert words(answers[3].results) == ["DONE"]
