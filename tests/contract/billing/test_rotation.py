"""Rotation: two secrets for a while, one account, one allowance."""

from typing import Any

from speedinfer.billing.v1 import access_pb2, account_pb2, key_pb2, price_pb2
from speedinfer.billing.v1 import reservation_pb2 as pb

from services.billing.engine import Engine
from services.billing.lease import Leases
from services.billing.metrics import Metrics
from services.billing.operations.account import CreateAccount
from services.billing.operations.key import CreateKey, RotateKey
from services.billing.operations.operation import Operation
from services.billing.operations.price import SetPrice
from services.billing.operations.release import Release
from services.billing.operations.reserve import Reserve
from services.billing.rules import Rules
from services.billing.store.open import open_store
from services.common.apikey import PresentedKey, make_key
from services.common.money import from_money, parse_usd, to_money
from tests.contract.billing.service import ADMIN, MODEL, Client, MovedClock, Service, stamp
from tests.contract.billing.test_limits import limit

HOUR_MS = 3_600_000


async def status(client: Client, made: PresentedKey) -> str:
    """What the edge is told of a presented key."""
    return access_pb2.KeyStatus.Name((await client.authorize(made)).status).removeprefix("KEY_STATUS_")


async def rotated(client: Client, **limits: object) -> tuple[str, PresentedKey, PresentedKey]:
    """An account, its key, and the key's successor after a rotation with an hour of grace."""
    account = await client.open_account("50")
    (_, old), (_, new) = make_key(), make_key()
    await client.add_key(account, old, **limits)
    assert (await client.rotate(old.key_id, HOUR_MS, new)).status == account_pb2.MUTATION_STATUS_DONE
    return account, old, new


async def test_both_secrets_work_and_bill_one_account_until_the_grace_ends(service: Service, client: Client) -> None:
    account, old, new = await rotated(client)
    assert (await client.authorize(old)).account_id == (await client.authorize(new)).account_id == account
    for made in (old, new):
        await client.settle(await client.hold(made.key_id), 10, 0)
    assert await client.balance(account) == (50_000_000_000 - 20_000, 0)
    running = await client.hold(old.key_id)
    service.clock.advance(HOUR_MS - 1)
    assert await status(client, old) == "ACTIVE"
    service.clock.advance(1)
    assert (await status(client, old), await status(client, new)) == ("EXPIRED", "ACTIVE")
    assert await client.refusal(client.reserve_item(old.key_id)) == "INVALID_KEY"
    # What runs on the old secret is charged all the same.
    assert from_money((await client.settle(running, 10, 0)).reservation.charge) == 10_000
    await client.hold(new.key_id)
    assert (await client.verify()).ok


async def test_a_rotation_gives_no_second_allowance(service: Service, client: Client) -> None:
    spend = to_money(parse_usd("3"))
    account, old, new = await rotated(client, requests_per_minute=3, concurrency=2, monthly_spend=spend)
    first = await client.hold(old.key_id)
    held = await client.hold(new.key_id)
    assert await limit(client, old.key_id) == await limit(client, new.key_id) == "concurrency"
    await client.release(first)
    third = await client.reserve(client.reserve_item(new.key_id))
    assert third.limits.requests_remaining == 0
    assert await limit(client, old.key_id) == "requests_per_minute"
    await client.settle(held, 1_000_000, 0)
    await client.settle(third.reservation_id, 1_000_000, 0)
    service.clock.advance(60_000)
    last = make_key()[1]
    await client.rotate(new.key_id, 0, last)
    await client.settle(await client.hold(last.key_id), 1_000_000, 0)
    # A third of a line, too, and after a restart.
    await service.stop()
    client = await service.start()
    assert await limit(client, last.key_id) == "monthly_spend"
    assert await client.balance(account) == (47_000_000_000, 0)


async def test_a_line_s_places_are_exact_within_one_batch(database: str) -> None:
    clock = MovedClock()
    client = Client(1, clock)
    store = open_store(database, clock.wall_ms)
    engine = Engine(store, Leases(60_000), clock, Metrics(), max_queue=20, max_batch=20)
    engine.start()
    rules, money, plenty = Rules(), to_money(1_000_000_000), to_money(9_000_000_000)

    async def does(*operations: Operation) -> list[Any]:
        answers = await engine.submit(operations)
        assert answers is not None
        return answers

    def reserve(key_id: str) -> Reserve:
        return Reserve(client.reserve_item(key_id, output_limit=1), rules)

    await does(
        CreateAccount(account_pb2.CreateAccountItem(operation_id=client.new_id(), name="n", credit=plenty), rules, "a"),
        SetPrice(
            price_pb2.SetPriceItem(
                operation_id=client.new_id(), model=MODEL, tiers=[price_pb2.PriceTier(prompt=money, completion=money)]
            ),
            rules,
        ),
        CreateKey(
            key_pb2.CreateKeyItem(
                operation_id=client.new_id(),
                account_id="a",
                key_id="old",
                key_sha256=bytes(32),
                limits=key_pb2.KeyLimits(concurrency=1),
            ),
            rules,
        ),
        RotateKey(
            key_pb2.RotateKeyItem(
                operation_id=client.new_id(), key_id="old", new_key_id="new", new_key_sha256=bytes(32), grace_ms=HOUR_MS
            ),
            rules,
        ),
    )
    first = reserve("new")
    free = Release(pb.ReleaseItem(reservation_id=first.item.reservation_id), rules)
    answers = await does(first, reserve("old"), free, reserve("old"), reserve("new"))
    await engine.stop()
    store.close()
    await client.channel.close()
    outcomes = [answer.WhichOneof("outcome") for answer in (*answers[:2], *answers[3:])]
    assert outcomes == ["reservation", "refusal", "reservation", "refusal"]


async def test_a_revocation_ends_the_one_secret_at_once(client: Client) -> None:
    _, old, new = await rotated(client)
    await client.revoke(old.key_id)
    assert (await status(client, old), await status(client, new)) == ("REVOKED", "ACTIVE")
    assert await client.refusal(client.reserve_item(old.key_id)) == "INVALID_KEY"
    await client.hold(new.key_id)


async def test_a_successor_does_not_inherit_the_end_of_a_grace(service: Service, client: Client) -> None:
    account, old, new = await rotated(client)
    again = await client.rotate(old.key_id, 2 * HOUR_MS)
    assert (again.status, again.field) == (account_pb2.MUTATION_STATUS_INVALID, "key_id")
    assert new.key_id in again.message
    assert (await client.rotate(new.key_id, -1)).field == "grace_ms"
    newest = await client.rotate(new.key_id, 0)
    assert newest.key.replaces_key_id == new.key_id
    assert not newest.key.limits.HasField("expires_at")
    assert await status(client, new) == "EXPIRED"
    # An end that the operator set is kept, and no grace outlives it.
    ending = str((await client.create_key(account, expires_at=stamp(service.clock.wall + 1_000))).key.key_id)
    kept = await client.rotate(ending, HOUR_MS)
    assert kept.key.limits.expires_at == stamp(service.clock.wall + 1_000)
    listed = (await client.keys.ListKeys(key_pb2.ListKeysRequest(account_id=account), metadata=ADMIN)).keys
    assert next(key for key in listed if key.key_id == ending).limits.expires_at == stamp(service.clock.wall + 1_000)
