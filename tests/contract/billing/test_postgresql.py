"""What only the PostgreSQL store promises: the server's settings, its migrations, append-only tables, outages."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from speedinfer.billing.v1 import reservation_pb2 as pb

from services.billing.store.open import open_store
from services.common.errors import ConfigurationError
from tests.contract.billing.cut import way_to
from tests.contract.billing.postgresql import Server
from tests.contract.billing.service import Client, Service, status_of

pytestmark = [pytest.mark.processes, pytest.mark.real]
USD = 1_000_000_000
ON_POSTGRESQL = pytest.mark.parametrize("database", ["postgresql"], indirect=True)


def opened(url: str) -> None:
    open_store(url, lambda: 1_800_000_000_000).close()


@pytest.fixture
def made(postgresql: Server) -> Iterator[Server]:
    """A database that was made and closed; whatever is done to it is undone."""
    postgresql.drop()
    opened(postgresql.url)
    yield postgresql
    postgresql.drop()


def with_setting(url: str, setting: str) -> str:
    return f"{url}&options=-c%20{setting.replace('=', '%3D')}"


@pytest.mark.parametrize("value", ["off", "local"])
def test_a_server_that_may_lose_what_it_acknowledged_is_refused(postgresql: Server, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"synchronous_commit = {value}"):
        opened(with_setting(postgresql.url, f"synchronous_commit={value}"))
    opened(with_setting(postgresql.url, "synchronous_commit=remote_apply"))


def test_a_server_without_fsync_is_refused(postgresql: Server) -> None:
    postgresql.do("ALTER SYSTEM SET fsync = off")
    try:
        postgresql.reload("fsync", "off")
        with pytest.raises(ConfigurationError, match="fsync = off"):
            opened(postgresql.url)
    finally:
        postgresql.do("ALTER SYSTEM RESET fsync")
        postgresql.reload("fsync", "on")


def test_what_is_no_server_is_refused_without_telling_the_password() -> None:
    with pytest.raises(ConfigurationError, match="cannot be used") as caught:
        opened("postgresql://me:mine@127.0.0.1:1/billing")
    assert "mine" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("INSERT INTO migration VALUES (99, '0099_later', 'x', 0)", "newer than this program knows"),
        ("UPDATE migration SET sha256 = 'x'", "does not know"),
        ("DELETE FROM migration", "half migrated"),
        ("DROP TRIGGER entry_stays ON entry", "entry_stays"),
        ("ALTER TABLE entry DISABLE TRIGGER entry_stays", "entry_stays"),
        (
            "CREATE OR REPLACE FUNCTION append_only() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "append",
        ),
        ("DROP TABLE charge", "charge"),
        ("DROP INDEX reservation_bearer", "reservation_bearer"),
        ("ALTER TABLE account DROP CONSTRAINT account_held_nanos_check", "account_held_nanos_check"),
        ("ALTER TABLE account ALTER balance_nanos TYPE numeric", "account"),
        ("CREATE TABLE mine (a int)", "mine"),
    ],
)
def test_a_database_that_is_not_as_written_is_refused(made: Server, change: str, said: str) -> None:
    opened(made.url)
    made.do(change)
    with pytest.raises(ConfigurationError, match=said):
        opened(made.url)


def test_another_program_s_database_is_refused(made: Server) -> None:
    made.drop()
    made.do("CREATE TABLE theirs (a int)")
    with pytest.raises(ConfigurationError, match="not billing's"):
        opened(made.url)
    assert made.do("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace") == [("theirs",)]


@pytest.mark.parametrize("table", ["entry", "ledger_transaction", "price_version", "charge"])
def test_the_books_are_append_only(made: Server, table: str) -> None:
    import psycopg

    with closing(made.connect()) as connection:
        connection.execute(
            "INSERT INTO ledger_transaction VALUES (1, 1, 0, '', '', ''); "
            "INSERT INTO entry VALUES (1, 1, 'house_outside', 1, NULL, NULL); "
            "INSERT INTO price_version VALUES (1, 'v', 'm', '', 0, 0, '[]', '{}'); "
            "INSERT INTO charge VALUES (1, 'r', 'house_outside', 0, 'k', 'm', 1, 'v', 1, 0, 1, 'w', 1, 1, 0, 0)"
        )
        name = {"price_version": "model", "charge": "model", "entry": "account_id"}.get(table, "note")
        for change in (f"UPDATE {table} SET {name} = {name}", f"DELETE FROM {table}", f"TRUNCATE {table} CASCADE"):
            with pytest.raises(psycopg.Error, match="append only"):
                connection.execute(change)


@ON_POSTGRESQL
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
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert status_of(caught.value) == "UNAVAILABLE"
    # An outage shortens no lease.
    service.clock.advance(25_000)
    assert (await client.reserve(item)).HasField("reservation")
    assert (await client.renew(held))[1] == 60_000
    assert await service.pass_time(59) == 0
    assert await client.balance(account) == (10 * USD, 2 * USD)
    assert (await client.verify()).ok
    assert await service.pass_time(1) == 2


@ON_POSTGRESQL
async def test_questions_survive_a_server_that_was_started_again(
    postgresql: Server, service: Service, client: Client
) -> None:
    account = await client.open_account("10")
    assert (await client.verify()).ok
    postgresql.cut()
    assert await client.balance(account) == (10 * USD, 0)
    assert (await client.verify()).ok


@ON_POSTGRESQL
async def test_a_commit_whose_outcome_nobody_knows_is_looked_up_by_its_id(database: str, tmp_path: Path) -> None:
    async with way_to(database) as way:
        service = Service(tmp_path, way.url)
        client = await service.start()
        await client.set_price()
        account = await client.open_account("10")
        key = await client.key(account)
        item = client.reserve_item(key)

        async def lost(call: "asyncio.Future[object] | object") -> None:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call  # type: ignore[misc]
            assert status_of(caught.value) == "UNAVAILABLE"
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


@ON_POSTGRESQL
async def test_text_that_postgresql_cannot_store_harms_nobody(service: Service, client: Client) -> None:
    account = (await client.create_account("1", name="A\0B")).account
    assert (await client.account(account.account_id)).name == "A\ufffdB"
    key = await client.key(account.account_id)
    assert await client.refusal(client.reserve_item("key\0")) == "INVALID_KEY"
    assert await client.refusal(client.reserve_item(key, model="m\0")) == "MODEL_NOT_PRICED"
    item = client.reserve_item(key, idempotency_key="k\0")
    assert await client.reserve(item) == await client.reserve(item)
    assert await client.refusal(client.reserve_item(key, idempotency_key="k\0")) == "DUPLICATE_REQUEST"
