"""What only the PostgreSQL store promises: the server's settings, its migrations, append-only tables, outages."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from services.billing.store.open import open_store
from services.common.errors import ConfigurationError
from tests.contract.billing.postgresql import Server
from tests.contract.billing.service import Client, Service

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
async def test_text_that_postgresql_cannot_store_harms_nobody(service: Service, client: Client) -> None:
    account = (await client.create_account("1", name="A\0B")).account
    assert (await client.account(account.account_id)).name == "A\ufffdB"
    key = await client.key(account.account_id)
    assert await client.refusal(client.reserve_item("key\0")) == "INVALID_KEY"
    assert await client.refusal(client.reserve_item(key, model="m\0")) == "MODEL_NOT_PRICED"
    item = client.reserve_item(key, idempotency_key="k\0")
    assert await client.reserve(item) == await client.reserve(item)
    assert await client.refusal(client.reserve_item(key, idempotency_key="k\0")) == "DUPLICATE_REQUEST"
