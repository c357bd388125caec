"""The outbox: what a dead process leaves is replayed, once, and nothing is lost or read wrongly."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speedinfer.billing.v1.reservation_pb2 import Ending, SettleItem

from services.common.ids import uuid7
from services.common.settings import EdgeLimits, EdgeSettings, Settings
from services.edge import outbox as outboxes
from services.edge import settlement
from services.edge.app import Edge
from services.edge.outbox import Outbox
from services.edge.outbox_file import OutboxFile
from services.edge.settlement import Settlement
from tests.fakes.scripted_billing import ScriptedBilling
from tests.unit.edge.conftest import eventually

ROOT = Path(__file__).resolve().parents[3]
COUNTS = st.none() | st.integers(0, 2**31 - 1)
ENTRIES = st.builds(
    Settlement,
    reservation_id=st.uuids().map(str),
    prompt_tokens=st.integers(0, 2**31 - 1),
    completion_tokens=COUNTS,
    cached_prompt_tokens=COUNTS,
    worker_id=st.text(st.characters(exclude_categories=["Cs"])),
    attempts=st.integers(1, 9),
    ending=st.integers(1, 3),
)
# Opens an outbox, appends, and dies as a killed process does: no clean-up runs.
DYING = """
import os, sys
from pathlib import Path
from services.edge.outbox import Outbox
from services.edge.settlement import Settlement
outbox = Outbox(Path(sys.argv[1]), 10**6)
outbox.open()
for number in range(3):
    outbox.append(Settlement(f"id-{number}", 12, 5, None, "w", 1, 1))
outbox.answered("id-1")
os.write(outbox._current._descriptor, b'{"settle":{"reservation_id":"torn')
os.kill(os.getpid(), 9)
"""


def entry(reservation_id: str = "id-0") -> Settlement:
    return Settlement(reservation_id, 12, 5, None, "w", 1, int(Ending.ENDING_COMPLETED))


async def kill_one(folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", DYING, str(folder), cwd=ROOT)
    assert await process.wait() == -9


@given(st.lists(ENTRIES, max_size=5), st.data())
def test_any_cut_of_a_file_reads_as_its_whole_lines(entries: list[Settlement], data: st.DataObject) -> None:
    lines = [each.line() for each in entries]
    text = b"".join(lines)
    cut = data.draw(st.integers(0, len(text)))
    pending, whole, broken = settlement.read_lines(text[:cut])
    assert broken == []
    assert text[:whole] == b"".join(lines[: text[:cut].count(b"\n")])
    kept = entries[: text[:cut].count(b"\n")]
    assert pending == {each.reservation_id: each for each in kept}


@given(ENTRIES)
def test_a_settlement_is_the_same_after_a_replay(each: Settlement) -> None:
    pending, _, _ = settlement.read_lines(each.line())
    again = pending[each.reservation_id]
    assert again == each
    assert again.item().SerializeToString(deterministic=True) == each.item().SerializeToString(deterministic=True)
    assert isinstance(again.item(), SettleItem)


def test_answered_settlements_are_not_read_again() -> None:
    text = entry("a").line() + entry("b").line() + settlement.done_line("a")
    assert list(settlement.read_lines(text)[0]) == ["b"]


def test_a_broken_line_in_the_middle_costs_only_itself() -> None:
    text = entry("a").line() + b"\x00\x00\n" + entry("b").line()
    pending, whole, broken = settlement.read_lines(text)
    assert (list(pending), whole, broken) == (["a", "b"], len(text), [b"\x00\x00"])


async def test_what_a_killed_process_left_is_adopted_without_its_torn_line(tmp_path: Path) -> None:
    await kill_one(tmp_path)
    outbox = Outbox(tmp_path, 10**6)
    outbox.open()
    assert sorted(each.reservation_id for each in outbox.pending()) == ["id-0", "id-2"]
    outbox.answered("id-0")
    assert len(list(tmp_path.glob("*.jsonl"))) == 2
    outbox.answered("id-2")
    # Its last settlement answered, the file of the dead is gone.
    assert len(list(tmp_path.glob("*.jsonl"))) == 1
    await outbox.close()
    assert list(tmp_path.glob("*.jsonl")) == []


async def test_a_living_process_s_file_is_left_alone(tmp_path: Path) -> None:
    first, second = Outbox(tmp_path, 10**6), Outbox(tmp_path, 10**6)
    first.open()
    first.append(entry())
    second.open()
    assert list(second.pending()) == []
    await first.close()
    # It left with a settlement open: now it is anybody's.
    assert list(second.adopt()) == [1]
    third = Outbox(tmp_path, 10**6)
    third.open()
    assert list(third.pending()) == []
    await second.close()
    await third.close()


async def test_replay_settles_each_once_and_removes_the_file(tmp_path: Path) -> None:
    await kill_one(tmp_path / "edge" / "outbox")
    billing = ScriptedBilling()
    await billing.start()
    section = EdgeSettings(
        listen="127.0.0.1:0",
        admin_listen="127.0.0.1:0",
        router_target="127.0.0.1:1",
        billing_target=f"127.0.0.1:{billing.port}",
        limits=EdgeLimits(drain_s=0.1),
    )
    edge = Edge(Settings(data_dir=tmp_path, edge=section), "token")
    await edge.start()
    await eventually(lambda: len(billing.holds) == 2 and len(edge._outbox) == 0)
    assert sorted(billing.calls) == [("settle", "id-0"), ("settle", "id-2")]
    await edge.drain()
    await billing.stop()
    assert list((tmp_path / "edge" / "outbox").glob("*.jsonl")) == []


async def test_files_turn_over_and_go_when_they_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outboxes, "FILE_BYTES", 300)
    outbox = Outbox(tmp_path, 1500)
    outbox.open()
    ids = [uuid7() for _ in range(9)]
    for each in ids:
        outbox.append(entry(each))
    assert outbox.refusal() == "full"
    assert len(list(tmp_path.glob("*.jsonl"))) > 2
    for each in ids:
        outbox.answered(each)
    assert outbox.refusal() is None
    assert len(list(tmp_path.glob("*.jsonl"))) == 1
    await outbox.close()


async def test_a_full_disk_leaves_readable_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = Outbox(tmp_path, 10**6)
    outbox.open()
    outbox.append(entry("a"))
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:10]))
    with pytest.raises(OSError, match="full"):
        outbox.append(entry("b"))
    assert outbox.refusal() == "broken"
    with pytest.raises(OSError, match="full"):
        await outbox.mend()
    monkeypatch.undo()
    await outbox.mend()
    assert outbox.refusal() is None
    outbox.append(entry("c"))
    (path,) = tmp_path.glob("*.jsonl")
    # What the disk did not take was kept in memory until it did.
    assert list(settlement.read_lines(path.read_bytes())[0]) == ["a", "b", "c"]
    for each in ("a", "b", "c"):
        outbox.answered(each)
    await outbox.close()


async def test_callers_that_come_together_share_a_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = OutboxFile.create(tmp_path)
    syncs: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (syncs.append(descriptor), fsync(descriptor)))
    file.append(entry())
    await asyncio.gather(*(file.sync(10) for _ in range(50)))
    # The file and its folder.
    assert len(syncs) == 2
    file.answered("id-0")
    file.close()
