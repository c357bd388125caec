"""kill -9 before every touch of a restore: the ledger is the old one or the new one, whole, and the next restore works."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from services.billing.store import open as stores
from services.billing.store.sqlite import connect
from tests.ledger.restorer import NOW_MS, Restorer, restorer

pytestmark = pytest.mark.processes
# More than a restore touches anything.
MOST = 200
# What it passes on its way, in this order: so that the test is seen to have been there.
PASSED = ("sqlite3.connect billing.db", "os.link billing.db", "os.remove billing.db-wal", "os.rename")
ACCOUNT = "INSERT INTO account (account_id, kind, name, created_at_ms) VALUES (?, 'customer', 'n', 0)"


@pytest.fixture(scope="module")
def killed() -> Iterator[Restorer]:
    with restorer() as made:
        yield made


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What is to be put back: a ledger with the account `new`."""
    other = tmp_path / "new" / "billing.db"
    stores.open_store(f"sqlite:///{other}", lambda: NOW_MS).close()
    with closing(connect(other)) as connection:
        connection.execute(ACCOUNT, ("new",))
    stores.backup(f"sqlite:///{other}", tmp_path / "copy.db")
    return tmp_path / "copy.db"


def put_in_log(database: Path, folder: Path) -> None:
    """What a killed billing leaves in a folder: a database with the account `old`, and one that is only in its log."""
    folder.mkdir()
    with closing(connect(database)) as connection:
        connection.execute(ACCOUNT, ("old",))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute(ACCOUNT, ("newest of the old",))
        for end in ("", "-wal"):
            shutil.copy(f"{database}{end}", folder / f"billing.db{end}")


def accounts(database: Path) -> list[str]:
    """As a billing finds them that starts here."""
    store = stores.open_store(f"sqlite:///{database}", lambda: NOW_MS)
    with closing(store), closing(store.reader()) as reader:
        return [one.account_id for one in reader.accounts("", 10)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "billing.db.lock")


def aside(folder: Path) -> list[Path]:
    """The ledgers that were put aside."""
    return [path for path in folder.glob("billing.db.replaced-*") if not path.name.endswith(("-wal", "-shm"))]


OLD, NEW = ["newest of the old", "old"], ["new"]


def each_kill(
    killed: Restorer, old: Path, copy: Path, folder: Path, *, drafts: bool = True
) -> Iterator[tuple[Path, str]]:
    """Folders as a restore leaves them that is killed before its first, second, ... touch; the last one is not killed."""
    for touch in range(1, MOST):
        here = folder / f"{touch:03}"
        shutil.copytree(old, here)
        step = killed.restore(here / "billing.db", copy, touch, drafts=drafts)
        yield here, step
        if not step:
            return
    raise AssertionError(f"more than {MOST} touches")


def check_passed(steps: list[str]) -> None:
    rest = iter(steps)
    assert [wanted for wanted in PASSED if not any(step.startswith(wanted) for step in rest)] == [], steps


def again(here: Path, copy: Path) -> None:
    """The next restore works, and takes away what the killed one left."""
    stores.restore(f"sqlite:///{here / 'billing.db'}", copy, lambda: NOW_MS, lambda _: None, replace=True)
    assert [name for name in names(here) if name.startswith(".")] == []
    assert accounts(here / "billing.db") == NEW


def test_a_killed_restore_leaves_the_old_ledger_or_the_new_one(killed: Restorer, copy: Path, tmp_path: Path) -> None:
    database = tmp_path / "made" / "billing.db"
    stores.open_store(f"sqlite:///{database}", lambda: NOW_MS).close()
    put_in_log(database, tmp_path / "old")
    steps: list[str] = []
    for here, step in each_kill(killed, tmp_path / "old", copy, tmp_path):
        steps.append(step)
        # A billing that starts at once, in a copy: the next restore is to find what the killed one left.
        looked_at = tmp_path / f"{here.name}-started"
        shutil.copytree(here, looked_at)
        found = accounts(looked_at / "billing.db")
        assert found in (OLD, NEW), step
        if found == NEW:
            assert [accounts(path) for path in aside(looked_at)] == [OLD], step
        again(here, copy)
        # The old ledger stands under one name, whole, and under no other.
        kept = [accounts(path) for path in aside(here)]
        assert kept.count(OLD) == 1, step
        assert kept == [OLD] if found == OLD else len(kept) == 2, step
    check_passed(steps)


def test_a_damaged_ledger_is_whole_wherever_its_restore_is_killed(killed: Restorer, copy: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    text, log = "this is a text of some length, and no database any more\n" * 20, "a log of what it was"
    (old / "billing.db").write_text(text)
    (old / "billing.db-wal").write_text(log)

    def whole(path: Path) -> bool:
        beside = path.with_name(f"{path.name}-wal")
        return b"no database any more" in path.read_bytes() and beside.exists() and beside.read_text() == log

    steps: list[str] = []
    for here, step in each_kill(killed, old, copy, tmp_path, drafts=False):
        steps.append(step)
        assert any(map(whole, [here / "billing.db", *aside(here)])), step
        again(here, copy)
        assert sum(map(whole, aside(here))) == 1, step
    check_passed(steps)
