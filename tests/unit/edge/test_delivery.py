"""What clients are told when the outbox's disk fails, and that nothing ends or blocks the delivery of what was taken on."""

import asyncio
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from speedinfer.billing.v1 import reservation_pb2 as messages
from speedinfer.billing.v1.reservation_pb2 import ReservationState, SettleStatus

from services.common.settings import EdgeLimits, EdgeSettings, Settings
from services.edge import delivery
from services.edge.app import Edge
from services.edge.outbox import Outbox
from services.edge.outbox_file import OutboxFile
from tests.fakes.scripted_billing import ScriptedBilling
from tests.unit.edge.conftest import Make, Stand, eventually
from tests.unit.edge.test_outbox import entry
from tests.unit.edge.test_outbox_disk import failing, on_disk
from tests.unit.edge.test_settle_order import well

COST = b'"cost":0.000005400'


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_FIRST_PAUSE_S", 0.002)
    monkeypatch.setattr(delivery, "_LONGEST_PAUSE_S", 0.02)


def fails(operation: str) -> Callable[[], None]:
    """From now on the disk does not do `operation`; answers what puts it right."""
    context = pytest.MonkeyPatch()
    if operation == "append":
        # Only the outbox's own descriptor: sockets are written to as ever.
        context.setattr(OutboxFile, "_write", failing(errno.ENOSPC))
    else:
        context.setattr(os, "fsync", failing(errno.EIO))
    return context.undo


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("operation", ["append", "sync"])
async def test_without_disk_and_billing_no_client_is_told_that_all_is_well(
    make_stand: Make, operation: str, stream: bool
) -> None:
    stand = await make_stand(settle_wait_s=0.05, billing_timeout_s=0.3)
    stand.router.script = well
    stand.billing.settles.clear()
    mend = fails(operation)
    try:
        answer = await stand.post(stand.body(stream=stream))
        if stream:
            assert b"[DONE]" not in answer.body
            error = json.loads(answer.events[-1])["error"]
        else:
            assert (answer.status, answer.headers["x-should-retry"]) == (503, "false")
            error = answer.error
        assert error["code"] == "billing_unavailable"
        # It was sent, so it may be booked: nobody says that it was not.
        assert "nothing was charged" not in error["message"]
        refused = await stand.post()
        assert (refused.status, refused.error["code"]) == (503, "billing_unavailable")
        assert "retry-after" in refused.headers
        assert stand.billing.names().count("reserve") == 1
        assert stand.metric("outbox_refusals_total", why="broken") == 1
        assert stand.metric("outbox_failures_total", operation=operation) >= 1
        assert (stand.metric("outbox_sound"), stand.metric("outbox_settlements")) == (0, 1)
    finally:
        mend()
    # The disk is back before billing is: what was in memory only is written down at last.
    await eventually(lambda: stand.metric("outbox_sound") == 1)
    assert on_disk(stand.data_dir / "edge" / "outbox") == [stand.billing.calls[0][1]]
    stand.billing.settles.set()
    await eventually(lambda: stand.metric("outbox_settlements") == 0)
    assert stand.billing.only.state == ReservationState.RESERVATION_STATE_SETTLED
    assert stand.metric("outbox_replays_total") >= 1
    assert "release" not in stand.billing.names()
    assert COST in (await stand.post()).body


@pytest.mark.parametrize("stream", [True, False])
async def test_billing_s_answer_is_enough_where_the_disk_takes_nothing(stand: Stand, stream: bool) -> None:
    stand.router.script = well
    mend = fails("append")
    try:
        answer = await stand.post(stand.body(stream=stream))
        assert answer.status == 200
        assert COST in answer.body
        assert stand.billing.only.state == ReservationState.RESERVATION_STATE_SETTLED
    finally:
        mend()


async def test_a_full_outbox_turns_new_work_away_before_money_is_touched(make_stand: Make) -> None:
    stand = await make_stand(settle_wait_s=0.02, billing_timeout_s=0.2, max_outbox_bytes=1)
    stand.router.script = well
    stand.billing.settles.clear()
    first = await stand.post(stand.body(stream=True))
    assert first.events[-1] == "[DONE]"
    refused = await stand.post()
    assert (refused.status, refused.error["code"]) == (503, "billing_unavailable")
    assert (stand.metric("outbox_refusals_total", why="full"), stand.billing.names().count("reserve")) == (1, 1)
    assert stand.metric("outbox_bytes") > 1
    assert stand.metric("outbox_oldest_seconds") > 0
    stand.billing.settles.set()
    await eventually(lambda: stand.metric("outbox_settlements") == 0)


async def test_a_busy_edge_adopts_what_another_left(make_stand: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "LOOK_EVERY_S", 0.3)
    stand = await make_stand()
    stand.router.script = well
    folder = stand.data_dir / "edge" / "outbox"
    other = Outbox(folder, 10**6)
    other.open()
    other.append(entry("left"))
    await other.close()
    # Never idle for as long as it would wait in idleness.
    async with asyncio.timeout(10):
        while "left" not in stand.billing.holds:
            stand.edge._settler.wake.set()
            await asyncio.sleep(0)
    await eventually(lambda: stand.metric("outbox_settlements") == 0)
    assert stand.billing.calls == [("settle", "left")]
    assert stand.metric("outbox_adopted_total") == 1
    assert len(stand.outbox_files()) == 1


async def test_nothing_ends_the_delivery(make_stand: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "LOOK_EVERY_S", 0.01)
    stand = await make_stand()
    seen: list[str] = []

    def fault(self: Outbox) -> None:
        seen.append("look")
        raise ValueError("a bug") if len(seen) == 2 else OSError(errno.EIO, "no")

    with monkeypatch.context() as faulty:
        faulty.setattr(Outbox, "look", fault)
        await eventually(lambda: len(seen) >= 3)
        stand.edge._outbox.append(entry("a"))
        stand.edge._settler.wake.set()
        await eventually(lambda: "a" in stand.billing.holds)
    await eventually(lambda: len(stand.edge._outbox) == 0)


class _Picky(ScriptedBilling):
    """Fails every call that has `poison` in it, and tells who is `late` to come again."""

    def __init__(self, status: grpc.StatusCode) -> None:
        super().__init__()
        self.status = status
        self.sizes: list[int] = []

    async def Settle(
        self, request: messages.SettleRequest, context: grpc.aio.ServicerContext
    ) -> messages.SettleResponse:
        ids = [item.reservation_id for item in request.items]
        self.sizes.append(len(ids))
        if "poison" in ids:
            await context.abort(self.status, "no")
        if "late" in ids:
            answer = await super().Settle(
                messages.SettleRequest(items=[item for item in request.items if item.reservation_id != "late"]), context
            )
            late = messages.SettleResult(reservation_id="late", status=SettleStatus.SETTLE_STATUS_UNSPECIFIED)
            answer.results.insert(ids.index("late"), late)
            return answer
        return await super().Settle(request, context)


@pytest.mark.parametrize(
    "status", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT]
)
async def test_a_settlement_that_billing_cannot_take_blocks_no_other(tmp_path: Path, status: grpc.StatusCode) -> None:
    billing = _Picky(status)
    await billing.start()
    ids = ["poison", "late", *(str(number) for number in range(600))]
    _left_by_a_dead_edge(tmp_path, ids)
    edge = _edge(tmp_path, billing.port)
    await edge.start()
    try:
        await eventually(lambda: len(edge._outbox) == 2)
        assert set(billing.holds) == set(ids) - {"poison", "late"}
        # However much was left behind, one batch of bounded size is on its way at a time.
        assert max(billing.sizes) <= 256
    finally:
        await edge.drain()
        await billing.stop()
    # Neither was dropped: the next start has them again.
    assert on_disk(tmp_path / "edge" / "outbox") == ["late", "poison"]


async def test_a_refusal_that_finds_no_quarantine_is_kept_and_comes_again(stand: Stand) -> None:
    stand.router.script = well
    stand.billing.settle_status = SettleStatus.SETTLE_STATUS_CONFLICT
    place = stand.data_dir / "edge" / "quarantine.jsonl"
    place.mkdir()
    answer = await stand.post()
    assert (answer.status, answer.error["code"]) == (503, "billing_unavailable")
    assert (stand.metric("outbox_settlements"), stand.metric("settlements_quarantined_total")) == (1, 0)
    assert stand.metric("outbox_failures_total", operation="quarantine") >= 1
    place.rmdir()
    await eventually(lambda: stand.metric("outbox_settlements") == 0)
    assert stand.metric("settlements_quarantined_total") == 1
    assert len(place.read_bytes().splitlines()) == 1


def _left_by_a_dead_edge(data_dir: Path, ids: list[str]) -> None:
    folder = data_dir / "edge" / "outbox"
    folder.mkdir(parents=True)
    (folder / "dead.jsonl").write_bytes(b"".join(entry(each).line() for each in ids))


def _edge(data_dir: Path, billing_port: int) -> Edge:
    section = EdgeSettings(
        listen="127.0.0.1:0",
        admin_listen="127.0.0.1:0",
        router_target="127.0.0.1:1",
        billing_target=f"127.0.0.1:{billing_port}",
        limits=EdgeLimits(drain_s=0.1),
    )
    return Edge(Settings(data_dir=data_dir, edge=section), "token")
