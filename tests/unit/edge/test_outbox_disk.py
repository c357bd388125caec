"""The outbox on a disk that fails: no false word that something is on disk, and nothing that was taken on is forgotten."""

import asyncio
import errno
import fcntl
import json
import os
import shutil
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from services.common.ids import uuid7
from services.edge import outbox as outboxes
from services.edge import settlement
from services.edge.metrics import Metrics
from services.edge.outbox import Outbox
from services.edge.outbox_file import OutboxFile
from services.edge.quarantine import Quarantine
from services.edge.settlement import Settlement
from tests.unit.edge.test_outbox import entry


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "edge" / "outbox"


def opened(folder: Path, **options: float) -> Outbox:
    outbox = Outbox(folder, 10**6, **options)  # type: ignore[arg-type]
    outbox.open()
    return outbox


def on_disk(folder: Path) -> list[str]:
    """What a process that starts now would replay."""
    found = [settlement.read_lines(path.read_bytes())[0] for path in folder.glob("*.jsonl")]
    return sorted(reservation_id for pending in found for reservation_id in pending)


def failing(error: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(error, os.strerror(error))

    return fail


async def test_what_was_there_when_a_sync_failed_is_never_said_to_be_on_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = opened(folder)
    outbox.append(entry("a"))
    outbox.append(entry("b"))
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", failing(errno.EIO))
        with pytest.raises(OSError, match="Input/output"):
            await outbox.sync("a")
    # This fsync would succeed: the kernel has dropped the pages that it could not write, and calls them clean.
    with pytest.raises(OSError, match="failed before"):
        await outbox.sync("b")
    assert outbox.refusal() == "broken"
    (old,) = folder.glob("*.jsonl")
    await outbox.mend()
    (new,) = folder.glob("*.jsonl")
    assert new != old
    await outbox.sync("b")
    assert on_disk(folder) == ["a", "b"]
    assert outbox.refusal() is None


async def test_callers_that_come_after_a_failing_sync_fail_with_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going, fsync = threading.Event(), os.fsync
    calls: list[int] = []

    def first_fails(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > 1:
            fsync(descriptor)
            return
        assert going.wait(10)
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(os, "fsync", first_fails)
    outbox = opened(folder)
    outbox.append(entry("a"))
    first = asyncio.create_task(outbox.sync("a"))
    while not calls:
        await asyncio.sleep(0)
    outbox.append(entry("b"))
    second = asyncio.create_task(outbox.sync("b"))
    await asyncio.sleep(0)
    going.set()
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(each) for each in results] == [OSError, OSError]


async def test_a_disk_that_hangs_is_waited_for_so_long_and_no_longer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = opened(folder, sync_wait_s=0.02)
    outbox.append(entry("a"))
    going, fsync = threading.Event(), os.fsync
    with monkeypatch.context() as hanging:
        hanging.setattr(os, "fsync", lambda descriptor: (going.wait(10), fsync(descriptor)))
        with pytest.raises(TimeoutError):
            await outbox.sync("a")
        assert outbox.refusal() == "broken"
        with pytest.raises(TimeoutError):
            await outbox.mend()
        # No further file, and no further thread, for a disk that has not answered yet.
        files = list(folder.iterdir())
        with pytest.raises(OSError, match="does not answer"):
            await outbox.mend()
        assert list(folder.iterdir()) == files
        going.set()
        while outbox._attempt is not None and outbox._attempt.syncing:
            await asyncio.sleep(0)
    await outbox.mend()
    assert (on_disk(folder), outbox.refusal()) == (["a"], None)


@pytest.mark.parametrize("recreated", [False, True])
async def test_a_folder_that_vanishes_is_made_again_with_what_was_in_it(folder: Path, recreated: bool) -> None:
    outbox = opened(folder)
    outbox.append(entry("a"))
    shutil.rmtree(folder)
    if recreated:
        folder.mkdir()
    with pytest.raises(OSError):
        await outbox.sync("a")
    assert outbox.refusal() == "broken"
    await outbox.mend()
    await outbox.sync("a")
    assert on_disk(folder) == ["a"]


async def test_a_file_that_lost_its_name_is_found_without_a_sync(folder: Path) -> None:
    outbox = opened(folder)
    outbox.append(entry("a"))
    (path,) = folder.glob("*.jsonl")
    path.rename(folder / "elsewhere")
    path.write_bytes(b"")
    outbox.look()
    assert outbox.refusal() == "broken"
    await outbox.mend()
    assert on_disk(folder) == ["a"]


async def test_an_answer_counts_although_the_disk_takes_no_mark_and_lets_no_file_go(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outboxes, "FILE_BYTES", 1)
    metrics = Metrics()
    outbox = Outbox(folder, 10**6, metrics)
    outbox.open()
    outbox.append(entry("a"))
    outbox.append(entry("b"))
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", failing(errno.ENOSPC))
        broken.setattr(Path, "unlink", failing(errno.EROFS))
        outbox.answered("a")
        outbox.answered("b")
    assert len(outbox) == 0
    failures = [
        metrics.registry.get_sample_value("speedinfer_edge_outbox_failures_total", {"operation": each})
        for each in ("mark", "remove")
    ]
    assert failures == [2, 1]
    # A replay of both does no harm; what counts is that the outbox knows that its disk is bad.
    assert outbox.refusal() == "broken"


async def test_what_is_answered_while_it_is_written_anew_is_not_replayed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = opened(folder)
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", failing(errno.ENOSPC))
        for each in ("a", "b"):
            with pytest.raises(OSError):
                outbox.append(entry(each))
    mending = asyncio.create_task(outbox.mend())
    while outbox._attempt is None or not outbox._attempt.syncing:
        await asyncio.sleep(0)
    outbox.answered("a")
    with pytest.raises(OSError, match="broken"):
        outbox.append(entry("c"))
    await mending
    assert [each.reservation_id for each in outbox.pending()] == ["b", "c"]
    assert on_disk(folder) == ["b", "c"]


async def test_one_answer_is_enough_for_a_settlement_that_is_in_two_files(folder: Path) -> None:
    """A process that died between writing a new file and removing the old one leaves both."""
    folder.mkdir(parents=True)
    for name in ("1", "2"):
        (folder / f"{name}.jsonl").write_bytes(entry("a").line())
    outbox = opened(folder)
    assert len(outbox) == 1
    outbox.answered("a")
    assert list(outbox.pending()) == []
    assert on_disk(folder) == []


async def test_lines_that_cannot_be_read_are_kept_for_a_person_and_cost_only_themselves(folder: Path) -> None:
    folder.mkdir(parents=True)
    spoilt = [
        b"\x00\x00",
        entry("x").line().strip().replace(b'"prompt_tokens":12', b'"prompt_tokens":"12"'),
        entry("x").line().strip().replace(b'"attempts":1', b'"attempts":-1'),
        entry("x").line().strip().replace(b'"worker_id":"w"', b'"worker_id":null'),
        b'{"settle":{"reservation_id":"x"}}',
        b"[]",
    ]
    (folder / "dead.jsonl").write_bytes(entry("a").line() + b"\n".join(spoilt) + b"\n" + entry("b").line())
    outbox = opened(folder)
    assert [each.item().reservation_id for each in outbox.pending()] == ["a", "b"]
    kept = [json.loads(line) for line in (folder.parent / "quarantine.jsonl").read_bytes().splitlines()]
    assert kept == [{"why": "unreadable", "line": line.decode("latin-1")} for line in spoilt]


async def test_a_file_whose_lines_find_no_quarantine_is_left_as_it_is(folder: Path) -> None:
    folder.mkdir(parents=True)
    text = entry("a").line() + b"\x00\n"
    (folder / "dead.jsonl").write_bytes(text)
    (folder.parent / "quarantine.jsonl").mkdir()
    outbox = opened(folder)
    assert (len(outbox), (folder / "dead.jsonl").read_bytes()) == (0, text)
    (folder.parent / "quarantine.jsonl").rmdir()
    assert list(outbox.adopt()) == [1]


async def test_a_file_that_cannot_be_read_keeps_none_of_the_others(folder: Path) -> None:
    (folder / "0.jsonl").mkdir(parents=True)
    (folder / "1.jsonl").write_bytes(entry("a").line())
    assert [each.reservation_id for each in opened(folder).pending()] == ["a"]


async def test_no_more_is_adopted_than_there_is_room_for(folder: Path) -> None:
    folder.mkdir(parents=True)
    for number in range(4):
        (folder / f"{number}.jsonl").write_bytes(entry(str(number)).line())
    outbox = Outbox(folder, len(entry("0").line()) + 1)
    outbox.open()
    assert [each.reservation_id for each in outbox.pending()] == ["0", "1"]
    assert outbox.refusal() == "full"
    for each in ("0", "1"):
        outbox.answered(each)
    assert list(outbox.adopt()) == [1, 1]


async def test_a_refused_settlement_stays_until_it_is_kept_for_a_person(folder: Path) -> None:
    outbox = opened(folder)
    outbox._quarantine = Quarantine(folder.parent / "quarantine.jsonl", max_bytes=10)
    outbox.append(entry("a"))
    assert not await outbox.quarantined(entry("a"), "conflict")
    assert [each.reservation_id for each in outbox.pending()] == ["a"]
    outbox._quarantine = Quarantine(folder.parent / "quarantine.jsonl")
    assert await outbox.quarantined(entry("a"), "conflict")
    assert (len(outbox), on_disk(folder)) == (0, [])
    kept = json.loads((folder.parent / "quarantine.jsonl").read_bytes())
    assert (kept["why"], kept["settle"]["reservation_id"]) == ("conflict", "a")
    assert outbox.quarantine_bytes > 0


async def test_a_quarantine_that_somebody_else_writes_is_not_waited_for(folder: Path) -> None:
    outbox = opened(folder)
    outbox.append(entry("a"))
    with (folder.parent / "quarantine.jsonl").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not await outbox.quarantined(entry("a"), "conflict")
    assert await outbox.quarantined(entry("a"), "conflict")


async def test_the_oldest_settlement_s_age_is_told_and_never_negative(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "dead.jsonl").write_bytes(entry("a").line())
    os.utime(folder / "dead.jsonl", (1_000_000_000, 1_000_000_000))
    (folder / "unborn.jsonl").write_bytes(entry("z").line())
    # As after a step of the clock back to before it was written.
    os.utime(folder / "unborn.jsonl", (4_000_000_000, 4_000_000_000))
    now_s = 50.0
    outbox = Outbox(folder, 10**6, now_s=lambda: now_s)
    outbox.open()
    assert outbox.oldest_s > 20 * 365 * 86400
    outbox.answered("a")
    outbox.append(entry("b"))
    assert outbox.oldest_s == 0
    outbox.answered("z")
    now_s = 53.0
    outbox.append(entry("c"))
    assert outbox.oldest_s == 3
    for each in ("b", "c"):
        outbox.answered(each)
    assert outbox.oldest_s == 0


async def test_closing_puts_down_what_no_disk_had_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = opened(folder)
    with monkeypatch.context() as broken:
        broken.setattr(os, "write", failing(errno.ENOSPC))
        with pytest.raises(OSError):
            outbox.append(entry("a"))
    await outbox.close()
    assert on_disk(folder) == ["a"]


async def test_closing_on_a_bad_disk_still_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    outbox = Outbox(folder, 10**6, metrics)
    outbox.open()
    outbox.append(entry("a"))
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    await outbox.close()
    assert metrics.registry.get_sample_value("speedinfer_edge_outbox_failures_total", {"operation": "sync"}) == 1
    # Unlocked, for whoever comes next.
    (path,) = folder.glob("*.jsonl")
    adopted = OutboxFile.adopt(path)
    assert adopted is not None
    assert list(adopted.pending) == ["a"]
    adopted.close()


async def test_a_settlement_that_waits_takes_less_than_a_kilobyte(folder: Path) -> None:
    outbox = opened(folder)
    count = 500
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-{:016x}-01"
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(count):
            outbox.append(Settlement(uuid7(), 12_345, 678, 90, f"worker-{number}", 1, 1, traceparent.format(number)))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / count < 1024
