"""Copies of the ledger: taken while billing writes, put back in a drill, and refused where they would do harm."""

import asyncio
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest
from speedinfer.billing.v1 import reservation_pb2 as pb

from services.billing import seal_key
from services.billing.audit import audit
from services.billing.reservation import State
from services.billing.store import draft, migrate, put_aside
from services.billing.store import open as stores
from services.billing.store.port import Reader
from services.billing.store.sqlite import connect
from services.common.errors import ConfigurationError
from tests.contract.billing import sealed_ledger
from tests.contract.billing.sealed_ledger import behind_its_back
from tests.contract.billing.service import Client, Service

USD = 1_000_000_000


def problems(reader: Reader, key: Path) -> list[str]:
    with reader.book() as book:
        return audit(book, seal_key.own_public(key).verify).problems


def now_ms() -> int:
    return 1_800_000_000_000


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Copies of this kind are SQLite's."""
    return f"sqlite:///{tmp_path / 'billing.db'}"


class Load:
    """Callers that hold and settle until they are told to stop, and what they were told was done."""

    def __init__(self, client: Client, key: str) -> None:
        self._client = client
        self._key = key
        self._stop = False
        self._grown = asyncio.Condition()
        self.held: set[str] = set()
        self.settled: set[str] = set()

    async def run(self) -> None:
        while not self._stop:
            reservation_id = await self._client.hold(self._key, output_limit=10, prompt=pb.PromptSize(text_bytes=10))
            self.held.add(reservation_id)
            await self._client.settle(reservation_id, 7, 3)
            self.settled.add(reservation_id)
            async with self._grown:
                self._grown.notify_all()

    async def wait_for(self, more: int) -> None:
        wanted = len(self.settled) + more
        async with self._grown:
            await self._grown.wait_for(lambda: len(self.settled) >= wanted)

    def stop(self) -> None:
        self._stop = True


async def test_a_backup_under_load_has_all_that_was_acknowledged_before_it_and_is_restored(
    service: Service, client: Client, database: str, tmp_path: Path
) -> None:
    account = await client.open_account("1000")
    load = Load(client, await client.key(account))
    callers = [asyncio.create_task(load.run()) for _ in range(8)]
    await load.wait_for(25)
    assert await sealed_ledger.seal(client) == [1]
    await load.wait_for(25)
    held, settled = set(load.held), set(load.settled)
    copy = tmp_path / "copy.db"
    backup = asyncio.create_task(asyncio.to_thread(stores.backup, database, copy))
    # Billing goes on while it is made.
    await load.wait_for(10)
    await backup
    await load.wait_for(1)
    load.stop()
    await asyncio.gather(*callers)
    with stores.open_copy(copy) as reader:
        assert problems(reader, tmp_path / "seal_key") == []
        found = {one.reservation_id: one.state for one in reader.reservations(account, (), "", 1_000_000)}
        assert len(reader.seals(0, 10)) == 1
    assert {name for name in settled if found.get(name) is not State.SETTLED} == set()
    assert held - found.keys() == set()
    assert copy.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in tmp_path.iterdir() if "copy" in path.name) == ["copy.db"]

    # The drill: another place, the copy, and what goes on from there.
    other = tmp_path / "other"
    url = f"sqlite:///{other / 'billing.db'}"
    looked: list[list[str]] = []
    aside = stores.restore(
        url, copy, now_ms, lambda reader: looked.append(problems(reader, tmp_path / "seal_key")), replace=False
    )
    assert (aside, looked) == (None, [[]])
    (other / "seal_key").write_bytes((tmp_path / "seal_key").read_bytes())
    (other / "seal_key").chmod(0o600)
    restored = Service(other, url)
    there = await restored.start()
    states = [one for one in settled if (await there.request(account, one)).state != pb.RESERVATION_STATE_SETTLED]
    assert states == []
    # What is sent again has the answer that it had.
    again = next(iter(settled))
    assert (await there.settle(again, 7, 3)).status == pb.SETTLE_STATUS_SETTLED
    balance = (await there.balance(account))[0]
    charged = sum(state is State.SETTLED for state in found.values())
    assert balance == 1000 * USD - charged * 10_000
    assert await sealed_ledger.seal(there) == [2]
    verdict = await there.verify()
    assert verdict.ok, list(verdict.problems)
    await restored.stop()


@pytest.fixture
def copy(database: str, tmp_path: Path) -> Path:
    """A copy of an empty ledger, which is there too."""
    stores.open_store(database, now_ms).close()
    stores.backup(database, tmp_path / "copy.db")
    return tmp_path / "copy.db"


def look_away(_: Reader) -> None:
    pass


def test_a_backup_replaces_nothing(database: str, copy: Path) -> None:
    before = copy.read_bytes()
    with pytest.raises(ConfigurationError, match="replaces nothing"):
        stores.backup(database, copy)
    assert copy.read_bytes() == before


KILLED = """
import os, pathlib, signal, sys
from services.billing.store.draft import draft
with draft(pathlib.Path(sys.argv[1])) as made:
    made.with_name(made.name + "-journal").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_backup_takes_away_what_killed_ones_left_and_nothing_else(database: str, tmp_path: Path) -> None:
    stores.open_store(database, now_ms).close()
    folder = tmp_path / "copies"
    folder.mkdir()
    target = folder / "copy.db"
    assert subprocess.run([sys.executable, "-c", KILLED, target], timeout=60).returncode == -signal.SIGKILL
    # Of one that was killed while it took them away.
    (folder / ".copy.db.7.00000007-wal").touch()
    assert len(list(folder.iterdir())) == 3
    others = {".copy.db.mine", ".other.db.7.00000007", "copy.db.7.00000007"}
    for name in others:
        (folder / name).touch()
    with draft.draft(target) as running:
        stores.backup(database, target)
        assert {path.name for path in folder.iterdir()} == {*others, running.name, "copy.db"}
    assert {path.name for path in folder.iterdir()} == {*others, "copy.db"}


def test_nothing_is_put_under_a_billing_that_runs(database: str, copy: Path) -> None:
    running = stores.open_store(database, now_ms)
    with pytest.raises(ConfigurationError, match="another billing process"):
        stores.restore(database, copy, now_ms, look_away, replace=True)
    running.close()


def test_a_ledger_is_put_aside_only_if_that_was_said(database: str, copy: Path) -> None:
    path = Path(database.removeprefix("sqlite:///"))
    with behind_its_back(path) as connection:
        connection.execute(
            "INSERT INTO account (account_id, kind, name, created_at_ms) VALUES ('a', 'customer', 'n', 0)"
        )
    with pytest.raises(ConfigurationError, match="--replace"):
        stores.restore(database, copy, now_ms, look_away, replace=False)
    aside = stores.restore(database, copy, now_ms, look_away, replace=True)
    assert aside is not None
    with stores.open_copy(aside) as old, stores.open_copy(path) as new:
        assert (len(old.accounts("", 10)), len(new.accounts("", 10))) == (1, 0)


@pytest.fixture
def killed(database: str, copy: Path, tmp_path: Path) -> Path:
    """What a killed process leaves: a ledger, and a log with a large account that the ledger does not have yet."""
    path, killed = Path(database.removeprefix("sqlite:///")), tmp_path / "killed" / "billing.db"
    killed.parent.mkdir()
    with closing(connect(path)) as connection:
        connection.execute(
            "INSERT INTO account (account_id, kind, name, created_at_ms) VALUES ('a', 'customer', ?, 0)",
            ("n" * 1_000_000,),
        )
        for end in ("", "-wal"):
            (killed.parent / f"billing.db{end}").write_bytes(path.with_name(path.name + end).read_bytes())
    return killed


def test_what_is_put_aside_has_the_commits_that_were_in_its_log(copy: Path, killed: Path) -> None:
    aside = stores.restore(f"sqlite:///{killed}", copy, now_ms, look_away, replace=True)
    assert aside is not None
    with stores.open_copy(aside) as old, stores.open_copy(killed) as new:
        assert (len(old.accounts("", 10)), len(new.accounts("", 10))) == (1, 0)


@contextmanager
def no_room_for_the_log(_killed: Path) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (900_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def somebody_reads(killed: Path) -> Iterator[None]:
    with closing(connect(killed, read_only=True)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM account").fetchone()
        yield


@pytest.mark.parametrize("trouble", [no_room_for_the_log, somebody_reads])
def test_a_sound_ledger_whose_log_cannot_come_in_now_is_left_as_it_was(
    copy: Path, killed: Path, trouble: Callable[[Path], AbstractContextManager[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(put_aside, "BUSY_TIMEOUT_MS", 1)
    with trouble(killed), pytest.raises(ConfigurationError, match="left as it was"):
        stores.restore(f"sqlite:///{killed}", copy, now_ms, look_away, replace=True)
    assert {path.name for path in killed.parent.iterdir()} <= {
        f"billing.db{end}" for end in ("", "-wal", "-shm", ".lock")
    }
    with stores.open_copy(killed) as reader:
        assert len(reader.accounts("", 10)) == 1
    aside = stores.restore(f"sqlite:///{killed}", copy, now_ms, look_away, replace=True)
    assert aside is not None
    with stores.open_copy(aside) as old, stores.open_copy(killed) as new:
        assert (len(old.accounts("", 10)), len(new.accounts("", 10))) == (1, 0)


def test_a_damaged_ledger_is_put_aside_with_all_that_belongs_to_it(database: str, copy: Path) -> None:
    path = Path(database.removeprefix("sqlite:///"))
    log = path.with_name(f"{path.name}-wal")
    path.write_text("this is a text of some length, and no database any more; it was one once\n" * 20)
    log.write_text("a log of what it was")
    aside = stores.restore(database, copy, now_ms, look_away, replace=True)
    assert aside is not None
    assert "no database any more" in aside.read_text()
    assert aside.with_name(f"{aside.name}-wal").read_text() == "a log of what it was"
    assert not log.exists()
    with stores.open_copy(path) as reader:
        assert reader.accounts("", 10) == []


class Unwanted(Exception):
    """What a look says that does not like what it sees."""


def test_a_copy_that_does_not_add_up_changes_nothing(database: str, copy: Path) -> None:
    path = Path(database.removeprefix("sqlite:///"))
    before, beside = path.read_bytes(), sorted(path.parent.iterdir())

    def look(_: Reader) -> None:
        raise Unwanted

    with pytest.raises(Unwanted):
        stores.restore(database, copy, now_ms, look, replace=True)
    assert path.read_bytes() == before
    assert sorted(path.parent.iterdir()) == beside


def test_what_is_no_ledger_is_neither_read_nor_put_back(database: str, tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("this is a text of some length, and no database at all; it never was one\n" * 20)
    for source in (text, tmp_path / "nothing.db"):
        with pytest.raises(ConfigurationError, match=r"cannot be read as a ledger|does not exist"):
            stores.restore(database, source, now_ms, look_away, replace=False)
        with (
            pytest.raises(ConfigurationError, match=r"cannot be read as a ledger|does not exist"),
            stores.open_copy(source),
        ):
            pass
    assert not Path(database.removeprefix("sqlite:///")).exists()


def test_a_copy_of_an_older_version_is_brought_up_when_it_is_put_back(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, migrations = tmp_path / "old.db", tmp_path / "migrations"
    migrations.mkdir()
    for name in ("0001_ledger.sql", "0002_account_limits.sql"):
        (migrations / name).write_bytes((migrate.FOLDER / name).read_bytes())
    with monkeypatch.context() as patched:
        patched.setattr(migrate, "FOLDER", migrations)
        connection = connect(old)
        migrate.migrate(connection, 0, "here")
        connection.close()
    with pytest.raises(ConfigurationError, match="of version 2, older"), stores.open_copy(old):
        pass
    stores.restore(database, old, now_ms, look_away, replace=False)
    with stores.open_copy(Path(database.removeprefix("sqlite:///"))) as reader:
        assert problems(reader, tmp_path / "seal_key") == []
