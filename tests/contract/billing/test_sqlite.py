"""What only the SQLite store promises: its settings, its migrations, one writer, append-only tables."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path

import pytest

from services.billing import chain
from services.billing.limits import NO_LIMITS, Counters
from services.billing.store import migrate
from services.billing.store import open as stores
from services.billing.store.open import open_store
from services.billing.store.port import Names
from services.billing.store.sqlite import SqliteStore, connect
from services.common.errors import ConfigurationError
from tests.contract.billing.sealed_ledger import seal, seals_made, statements
from tests.contract.billing.service import Service
from tests.harness.until import until_async


def store(path: Path) -> SqliteStore:
    return SqliteStore(path, lambda: 1_800_000_000_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database that was made and closed."""
    path = tmp_path / "billing.db"
    store(path).close()
    return path


def test_a_made_database_is_taken_again(path: Path) -> None:
    store(path).close()


def test_commits_are_on_disk_when_they_are_answered(path: Path) -> None:
    with closing(connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert connection.execute("PRAGMA synchronous").fetchone()[0] == 2
        assert connection.execute("PRAGMA foreign_keys").fetchone()[0] == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("INSERT INTO migration VALUES (99, '0099_later', 'x', 0)", "newer than this program knows"),
        ("UPDATE migration SET sha256 = 'x'", "does not know"),
        ("DELETE FROM migration", "half migrated"),
        ("DROP TRIGGER entry_stays", "entry_stays"),
        ("DROP TABLE charge", "charge"),
        ("CREATE TABLE mine (a)", "mine"),
    ],
)
def test_a_database_that_is_not_as_written_is_refused(path: Path, change: str, said: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(change)
    before = path.read_bytes()
    with pytest.raises(ConfigurationError, match=said):
        store(path)
    assert path.read_bytes() == before


def test_an_older_database_is_brought_up_with_what_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, old = tmp_path / "billing.db", tmp_path / "migrations"
    old.mkdir()
    (old / "0001_ledger.sql").write_bytes((migrate.FOLDER / "0001_ledger.sql").read_bytes())
    with monkeypatch.context() as patched:
        patched.setattr(migrate, "FOLDER", old)
        with closing(connect(path)) as connection:
            migrate.migrate(connection, 0, "here")
            connection.execute(
                "INSERT INTO account (account_id, kind, name, created_at_ms) VALUES ('a', 'customer', 'n', 0)"
            )
            columns = "key_id, account_id, name, sha256, models, created_at_ms, replaces_key_id"
            for key_id, before in (("k1", ""), ("k2", "k1"), ("k3", "")):
                connection.execute(
                    f"INSERT INTO api_key ({columns}) VALUES (?, 'a', '', zeroblob(32), '[]', 0, ?)", (key_id, before)
                )
    taken = store(path)
    with taken.session() as session:
        found = session.load(Names(keys={"k1", "k2", "k3"}))
    taken.close()
    assert {name: (key.line_id, key.replaced_by_key_id) for name, key in found.keys.items()} == {
        "k1": ("k1", "k2"),
        "k2": ("k2", ""),
        "k3": ("k3", ""),
    }
    account = found.accounts["a"]
    assert (account.limits, account.credit_limit_nanos, account.counters) == (NO_LIMITS, 0, Counters())


def test_another_program_s_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    with pytest.raises(ConfigurationError, match="not billing's"):
        store(path)


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("this is a text of some length, and no database at all; it never was one\n" * 20)
    with pytest.raises(ConfigurationError, match="cannot be used"):
        store(path)


def test_two_writers_are_one_too_many(path: Path) -> None:
    first = store(path)
    with pytest.raises(ConfigurationError, match="another billing process"):
        store(path)
    first.close()
    store(path).close()


def test_a_successor_waits_for_the_ledger(path: Path) -> None:
    first = store(path)
    with ThreadPoolExecutor(1) as successor:
        second = successor.submit(SqliteStore, path, lambda: 0, 30.0)
        wait([second], timeout=0)
        assert not second.done()
        first.close()
        second.result().close()
    first = store(path)
    with pytest.raises(ConfigurationError, match="another billing process"):
        SqliteStore(path, lambda: 0, 0.01)
    first.close()


def test_a_database_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'mysql'"):
        open_store("mysql://here/there", lambda: 0)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entry SET amount_nanos = 1",
        "DELETE FROM entry",
        "UPDATE ledger_transaction SET note = 'x'",
        "DELETE FROM ledger_transaction",
        "UPDATE price_version SET tiers = '[]'",
        "DELETE FROM price_version",
        "UPDATE chain_start SET entry_number = 9",
        "DELETE FROM chain_start",
        "UPDATE seal SET key_id = 'x'",
        "DELETE FROM seal",
    ],
)
def test_the_books_are_append_only(path: Path, statement: str) -> None:
    with closing(connect(path)) as connection:
        connection.execute("INSERT INTO ledger_transaction VALUES (1, 1, 0, '', '', '')")
        connection.execute("INSERT INTO entry VALUES (1, 1, 'house_outside', 1, NULL, NULL, NULL)")
        connection.execute("INSERT INTO price_version VALUES (1, 'v', 'm', '', 0, 0, '[]', '{}')")
        connection.execute("INSERT INTO seal VALUES (1, 0, 0, 0, x'', x'', '')")
        with pytest.raises(sqlite3.IntegrityError, match="append only"):
            connection.execute(statement)


async def test_older_entries_have_no_chain_and_what_follows_begins_from_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, migrations = tmp_path / "billing.db", tmp_path / "migrations"
    migrations.mkdir()
    for name in ("0001_ledger.sql", "0002_account_limits.sql"):
        (migrations / name).write_bytes((migrate.FOLDER / name).read_bytes())
    with monkeypatch.context() as patched, closing(connect(path)) as connection:
        patched.setattr(migrate, "FOLDER", migrations)
        migrate.migrate(connection, 0, "here")
        for number, account_id in ((1, "acct_a"), (2, "acct_b")):
            connection.execute(
                "INSERT INTO account (account_id, kind, name, created_at_ms, balance_nanos, entries) "
                "VALUES (?, 'customer', 'n', 0, 7, 1)",
                (account_id,),
            )
            connection.execute("INSERT INTO ledger_transaction VALUES (?, 1, 0, '', 'op', '')", (number,))
            connection.execute("INSERT INTO entry VALUES (?, ?, ?, 7, 1, 7)", (2 * number - 1, number, account_id))
            connection.execute("INSERT INTO entry VALUES (?, ?, 'house_outside', -7, NULL, NULL)", (2 * number, number))
    service = Service(tmp_path, f"sqlite:///{path}")
    client = await service.start()
    # What it found is sealed at once.
    await until_async(lambda: seals_made(service), "a seal of what was there")
    await client.credit("acct_a", "1")
    assert await seal(client) == [2]
    verdict = await client.verify()
    assert verdict.ok, list(verdict.problems)
    first = (await statements(client))[0]
    with stores.open_copy(path) as reader, reader.book() as book:
        chains = [(entry.account_id, entry.chain is not None) for entry in book.entries if entry.account_seq]
    assert first.chain_start == 4
    assert [(head.account_id, head.chain) for head in first.heads] == [
        (account_id, chain.start(account_id, 1, 7)) for account_id in ("acct_a", "acct_b")
    ]
    assert chains == [("acct_a", False), ("acct_b", False), ("acct_a", True)]
    await service.stop()
