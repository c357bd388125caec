"""What only the PostgreSQL store promises: the server's settings, its migrations, append-only tables, few statements.

The driver is imported by the tests themselves, so that they are skipped and not missing where it is not installed.
"""

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from speedinfer.billing.v1 import reservation_pb2 as pb

from services.billing.store.open import foresee, open_store
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


def test_an_array_comes_back_as_it_went_in(postgresql: Server) -> None:
    from services.billing.store.postgresql_array import array
    from services.billing.store.postgresql_connection import connect

    texts = [
        "",
        "NULL",
        None,
        'a "quoted" one',
        "back\\slash\\",
        "{a,b}",
        "'; DROP TABLE entry; --",
        "\n\t ",
        "\u4e16\U0001f642",
        "%s ?",
    ]
    numbers = [0, -1, 2**63 - 1, -(2**63), None]
    raw = [b"", b'\x00\xff"\\{},', None]
    # What needs no escaping is written in another way, as long as all of it needs none.
    alone = [("text", [text, "plain"]) for text in texts if text is not None]
    with closing(connect(postgresql.url)) as connection:
        for kind, elements in (("text", texts), ("bigint", numbers), ("bytea", raw), ("text", []), *alone):
            row = connection.execute(f"SELECT %s::{kind}[]", [array(elements)]).fetchone()
            assert row == (elements,)


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


@pytest.fixture
def later(made: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The migrations of a later program, in a folder to which more can be added."""
    from services.billing.store import postgresql_schema

    for file in postgresql_schema.FOLDER.glob("*.sql"):
        shutil.copy(file, tmp_path)
    monkeypatch.setattr(postgresql_schema, "FOLDER", tmp_path)
    yield tmp_path
    monkeypatch.undo()


def test_an_older_database_is_brought_up_and_the_older_program_refuses_it(
    made: Server, later: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.do("INSERT INTO account (account_id, kind, name, created_at_ms) VALUES ('a', 'customer', 'n', 0)")
    (later / "0002_more.sql").write_text("ALTER TABLE account ADD COLUMN more BIGINT NOT NULL DEFAULT 7;")
    foresee(made.url)
    # To look is not to change.
    assert made.do("SELECT count(*) FROM migration") == [(1,)]
    opened(made.url)
    opened(made.url)
    assert made.do("SELECT name FROM migration ORDER BY number") == [("0001_ledger",), ("0002_more",)]
    assert made.do("SELECT more FROM account WHERE account_id = 'a'") == [(7,)]
    monkeypatch.undo()
    for opening in (opened, foresee):
        with pytest.raises(ConfigurationError, match="newer than this program knows"):
            opening(made.url)


def test_half_a_migration_never_stands(made: Server, later: Path) -> None:
    (later / "0002_broken.sql").write_text("CREATE TABLE half (a BIGINT); ALTER TABLE nothing ADD COLUMN a BIGINT;")
    with pytest.raises(ConfigurationError, match="nothing"):
        opened(made.url)
    assert made.do("SELECT count(*), to_regclass('half') FROM migration") == [(1, None)]
    (later / "0002_broken.sql").unlink()
    opened(made.url)


def test_of_several_that_start_at_once_one_makes_the_tables(made: Server) -> None:
    made.drop()
    with ThreadPoolExecutor(4) as starting:
        for one in [starting.submit(opened, made.url) for _ in range(4)]:
            one.result()
    assert made.do("SELECT number FROM migration") == [(1,)]


@pytest.mark.parametrize("read_only", [False, True])
def test_every_wait_is_bounded(postgresql: Server, read_only: bool) -> None:
    from services.billing.store.postgresql_connection import connect

    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout")
    with closing(connect(postgresql.url, read_only=read_only)) as connection:
        found = {name: connection.execute(f"SHOW {name}").fetchone()[0] for name in names}
    assert set(found) == set(names)
    assert "0" not in found.values()


@ON_POSTGRESQL
async def test_a_batch_takes_as_many_statements_as_a_single_call(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    keys = [
        await client.key(await client.open_account("1000"), concurrency=50, requests_per_minute=100) for _ in range(20)
    ]
    statements: list[str] = []
    execute = psycopg.Connection.execute

    def counted(self: Any, query: Any, *args: Any, **fields: Any) -> Any:
        if threading.current_thread().name == "billing-writer":
            statements.append(query)
        return execute(self, query, *args, **fields)

    monkeypatch.setattr(psycopg.Connection, "execute", counted)

    async def taken(count: int) -> tuple[int, int]:
        """Statements for so many reservations of as many accounts, and for their charges."""
        items = [client.reserve_item(key, idempotency_key=client.new_id(), output_limit=1) for key in keys[:count]]
        statements.clear()
        held = await client.reservations.Reserve(pb.ReserveRequest(items=items))
        assert all(result.HasField("reservation") for result in held.results)
        reserving = len(statements)
        statements.clear()
        settles = [client.settle_item(item.reservation_id, 1, 1) for item in items]
        settled = await client.reservations.Settle(pb.SettleRequest(items=settles))
        assert {result.status for result in settled.results} == {pb.SETTLE_STATUS_SETTLED}
        return reserving, len(statements)

    # The price's version is read once for all.
    await taken(1)
    alone = await taken(1)
    assert min(alone) > 5
    assert await taken(20) == alone


def test_another_program_s_database_is_refused(made: Server) -> None:
    made.drop()
    made.do("CREATE TABLE theirs (a int)")
    with pytest.raises(ConfigurationError, match="not billing's"):
        opened(made.url)
    assert made.do("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace") == [("theirs",)]


@pytest.mark.parametrize("table", ["entry", "ledger_transaction", "price_version", "charge", "seal", "chain_start"])
def test_the_books_are_append_only(made: Server, table: str) -> None:
    import psycopg

    with closing(made.connect()) as connection:
        connection.execute(
            "INSERT INTO ledger_transaction VALUES (1, 1, 0, '', '', ''); "
            "INSERT INTO entry VALUES (1, 1, 'house_outside', 1, NULL, NULL); "
            "INSERT INTO price_version VALUES (1, 'v', 'm', '', 0, 0, '[]', '{}'); "
            "INSERT INTO seal VALUES (1, 0, 0, 0, '', '', ''); "
            "INSERT INTO charge VALUES (1, 'r', 'house_outside', 0, 'k', 'm', 1, 'v', 1, 0, 1, 'w', 1, 1, 0, 0)"
        )
        name = {
            "ledger_transaction": "note",
            "entry": "account_id",
            "seal": "key_id",
            "chain_start": "entry_number",
        }.get(table, "model")
        for change in (f"UPDATE {table} SET {name} = {name}", f"DELETE FROM {table}", f"TRUNCATE {table} CASCADE"):
            with pytest.raises(psycopg.Error, match="append only"):
                connection.execute(change)


@ON_POSTGRESQL
async def test_text_that_postgresql_cannot_store_harms_nobody(service: Service, client: Client) -> None:
    account = await client.open_account("10")
    await client.credit(account, "1", note="a\0b")
    key = await client.key(account)
    assert await client.refusal(client.reserve_item("key\0")) == "INVALID_KEY"
    assert await client.refusal(client.reserve_item(key, model="m\0")) == "MODEL_NOT_PRICED"
    item = client.reserve_item(key, idempotency_key="k\0")
    assert await client.reserve(item) == await client.reserve(item)
    assert await client.refusal(client.reserve_item(key, idempotency_key="k\0")) == "DUPLICATE_REQUEST"
    settled = [await client.settle(item.reservation_id, 10, 5, worker_id="w\0") for _ in range(2)]
    assert settled[0] == settled[1]
    assert settled[0].reservation.worker_id == "w\ufffd"
    # What is chained is what is stored.
    assert (await client.verify()).ok
