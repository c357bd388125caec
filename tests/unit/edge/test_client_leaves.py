"""A client that leaves, at each moment: who pays, and that nothing is left behind."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from speedinfer.billing.v1.reservation_pb2 import Ending, ReservationState
from speedinfer.router.v1.frame_pb2 import FailureReason, Frame
from speedinfer.router.v1.inference_pb2 import GenerateItem

from services.common.settings import EdgeLimits, EdgeSettings, Settings
from services.edge import departure
from services.edge.app import Edge
from services.edge.departure import Event, Verdict
from tests.fakes.scripted_router import accepted, data, end, failure, so_far
from tests.unit.edge.conftest import Make, Stand, eventually

HELLO = b'{"choices":[{"index":0,"delta":{"content":"Hello"}}]}'
State = ReservationState


class Paused:
    """A script that plays frames, waits for `go`, and plays the rest."""

    def __init__(self, first: list[Frame], then: list[Frame]) -> None:
        self.first, self.then = first, then
        self.go = asyncio.Event()
        self.waiting = asyncio.Event()

    async def __call__(self, _item: GenerateItem) -> AsyncIterator[Frame]:
        for frame in self.first:
            yield frame
        self.waiting.set()
        await self.go.wait()
        for frame in self.then:
            yield frame


async def leave(stand: Stand, script: Paused, *, stream: bool = True, after: bytes = b"") -> None:
    stand.router.script = script
    reader, writer = await stand.open_raw(stand.body(stream=stream))
    if after:
        await reader.readuntil(after)
    await script.waiting.wait()
    writer.close()
    await writer.wait_closed()


async def closed(stand: Stand, state: ReservationState.ValueType) -> None:
    await eventually(lambda: stand.billing.only.state == state)
    await eventually(lambda: stand.metric("open_requests") == 0)
    assert stand.metric("orphans") == 0


@pytest.mark.parametrize("stream", [True, False])
async def test_before_content_the_worker_is_dropped_and_the_hold_released(stand: Stand, stream: bool) -> None:
    first = [accepted()] if stream else [accepted(), data(b'{"usage":{}}')]
    script = Paused(first, [end()])
    await leave(stand, script, stream=stream)
    async with asyncio.timeout(1):
        await stand.router.cancelled.wait()
    await closed(stand, State.RESERVATION_STATE_RELEASED)
    assert stand.billing.only.cause == "client_left"
    assert stand.billing.names() == ["reserve", "release"]


async def test_while_the_hold_is_made(stand: Stand) -> None:
    stand.billing.reserves.clear()
    _, writer = await stand.open_raw(stand.body(stream=True))
    await eventually(lambda: stand.metric("open_requests") == 1)
    writer.close()
    await writer.wait_closed()
    stand.billing.reserves.set()
    await eventually(lambda: stand.billing.names() == ["reserve", "release"])
    await closed(stand, State.RESERVATION_STATE_RELEASED)
    assert stand.router.items == []


async def test_after_content_with_usage_so_far_that_is_charged(stand: Stand) -> None:
    script = Paused([accepted(), so_far(12, 1), data(HELLO), so_far(12, 3)], [end(12, 99)])
    await leave(stand, script, after=b"Hello")
    await stand.router.cancelled.wait()
    await closed(stand, State.RESERVATION_STATE_SETTLED)
    settled = stand.billing.only.settled
    assert settled is not None
    assert settled.ending == Ending.ENDING_CLIENT_LEFT
    # The last frame may or may not have been read when the client left; what was read is what is charged.
    assert settled.usage.completion_tokens in (1, 3)
    assert "release" not in stand.billing.names()


async def test_after_content_without_usage_the_worker_is_read_on(stand: Stand) -> None:
    script = Paused([accepted(), so_far(12, None), data(HELLO)], [data(HELLO), end(12, 9)])
    await leave(stand, script, after=b"Hello")
    await eventually(lambda: stand.metric("orphans") == 1)
    assert not stand.router.cancelled.is_set()
    script.go.set()
    await closed(stand, State.RESERVATION_STATE_SETTLED)
    settled = stand.billing.only.settled
    assert settled is not None
    assert (settled.usage.completion_tokens, settled.ending) == (9, Ending.ENDING_CLIENT_LEFT)


async def test_usage_that_comes_after_the_client_left_ends_the_reading(stand: Stand) -> None:
    script = Paused([accepted(), data(HELLO)], [so_far(12, 4), data(HELLO), end(12, 9)])
    await leave(stand, script, after=b"Hello")
    await eventually(lambda: stand.metric("orphans") == 1)
    script.go.set()
    await closed(stand, State.RESERVATION_STATE_SETTLED)
    settled = stand.billing.only.settled
    assert settled is not None
    assert settled.usage.completion_tokens == 4


async def test_a_worker_that_then_reports_nothing_is_free_and_an_alarm(stand: Stand) -> None:
    script = Paused([accepted(), data(HELLO)], [failure(FailureReason.FAILURE_REASON_USAGE_MISSING)])
    await leave(stand, script, after=b"Hello")
    await eventually(lambda: stand.metric("orphans") == 1)
    script.go.set()
    await closed(stand, State.RESERVATION_STATE_RELEASED)
    assert stand.metric("unmetered_total") == 1


async def test_the_total_deadline_bounds_what_is_read_on(make_stand: Make) -> None:
    stand = await make_stand(request_timeout_s=0.3)
    script = Paused([accepted(), data(HELLO)], [failure(FailureReason.FAILURE_REASON_TIMEOUT, deadline="total")])
    await leave(stand, script, after=b"Hello")
    await eventually(lambda: stand.metric("orphans") == 1)
    assert 0 < stand.router.items[0].context.remaining_ms <= 300
    script.go.set()
    await closed(stand, State.RESERVATION_STATE_RELEASED)
    assert stand.metric("unmetered_total") == 1


async def test_the_total_deadline_with_the_client_there_charges_what_is_known(stand: Stand) -> None:
    script = Paused(
        [accepted(), data(HELLO), so_far(12, 4)], [failure(FailureReason.FAILURE_REASON_TIMEOUT, deadline="total")]
    )
    script.go.set()
    stand.router.script = script
    answer = await stand.post(stand.body(stream=True))
    assert '"upstream_timeout"' in answer.events[-1]
    settled = stand.billing.only.settled
    assert settled is not None
    assert (settled.usage.completion_tokens, settled.ending) == (4, Ending.ENDING_DEADLINE)


async def test_after_the_settlement_was_sent_the_charge_stands(make_stand: Make) -> None:
    stand = await make_stand(settle_wait_s=30)
    stand.billing.settles.clear()
    script = Paused([accepted(), data(HELLO), end()], [])
    stand.router.script = script
    reader, writer = await stand.open_raw(stand.body(stream=True))
    await reader.readuntil(b"Hello")
    await eventually(lambda: "settle" in stand.billing.names())
    writer.close()
    await writer.wait_closed()
    stand.billing.settles.set()
    await closed(stand, State.RESERVATION_STATE_SETTLED)
    assert stand.billing.names() == ["reserve", "settle"]


async def test_a_reader_that_takes_nothing_has_left(make_stand: Make) -> None:
    stand = await make_stand(reader_stall_s=0.2)
    big = b'{"choices":[{"index":0,"delta":{"content":"%b"}}]}' % (b"x" * 200_000)
    sent = 0

    async def script(_item: GenerateItem) -> AsyncIterator[Frame]:
        nonlocal sent
        yield accepted()
        yield so_far(12, 1)
        while sent < 400:
            sent += 1
            yield data(big)

    stand.router.script = script
    _, writer = await stand.open_raw(stand.body(stream=True))
    await closed_after_hold(stand)
    settled = stand.billing.only.settled
    assert settled is not None
    assert settled.ending == Ending.ENDING_CLIENT_LEFT
    # The worker was slowed: of its 200 kB frames the client, the system's buffers and ours took about 1.4 MB in all. With
    # windows that grow, or as much in the edge's send buffer as the system likes, it is 6 MB and more.
    assert sent < 18
    writer.close()


async def closed_after_hold(stand: Stand) -> None:
    await eventually(lambda: stand.billing.holds and stand.billing.only.settled)
    await eventually(lambda: stand.metric("open_requests") == 0)


async def test_orphans_bound_a_key_s_new_streams(make_stand: Make) -> None:
    stand = await make_stand(max_orphans_per_key=1)
    script = Paused([accepted(), data(HELLO)], [end(12, 9)])
    await leave(stand, script, after=b"Hello")
    await eventually(lambda: stand.metric("orphans") == 1)
    refused = await stand.post(stand.body(stream=True))
    assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
    assert refused.headers["retry-after"] == "10"
    assert len(stand.billing.holds) == 1
    script.go.set()
    # A whole answer cannot become an orphan and is not refused.
    await stand.post()
    await eventually(lambda: stand.metric("orphans") == 0)
    served = await stand.post(stand.body(stream=True))
    assert served.events[-1] == "[DONE]"


@pytest.mark.parametrize("event", list(Event))
@pytest.mark.parametrize("content_sent", [True, False])
@pytest.mark.parametrize("usage_known", [True, False])
def test_the_table_has_an_answer_for_everything(event: Event, content_sent: bool, usage_known: bool) -> None:
    verdict = departure.decide(event, content_sent=content_sent, usage_known=usage_known)
    # What the gateway or the worker broke, and what never reached the client, is never charged.
    if not content_sent or event is Event.WORKER_FAILED:
        assert verdict is Verdict.RELEASE
    elif usage_known:
        assert verdict is Verdict.CHARGE_SO_FAR
    else:
        assert verdict is (Verdict.READ_ON if event is Event.CLIENT_LEFT else Verdict.RELEASE_UNMETERED)


@pytest.mark.parametrize("counting", [True, False])
async def test_leaving_at_any_event_closes_every_hold_once(stand: Stand, counting: bool) -> None:
    events = 12

    async def script(_item: GenerateItem) -> AsyncIterator[Frame]:
        yield accepted()
        for number in range(events):
            if counting:
                yield so_far(12, number)
            yield data(b'{"choices":[{"index":0,"delta":{"content":"%d."}}]}' % number)
            await asyncio.sleep(0)
        yield end(12, events)

    async def leave_after(number: int) -> None:
        reader, writer = await stand.open_raw(stand.body(stream=True))
        if number:
            await reader.readuntil(b'"%d."' % (number - 1))
        writer.close()
        await writer.wait_closed()

    stand.router.script = script
    await asyncio.gather(*(leave_after(number) for number in range(events + 1) for _ in range(4)))
    await eventually(lambda: stand.metric("open_requests") == 0)
    holds = stand.billing.holds
    await eventually(lambda: all(hold.state != State.RESERVATION_STATE_HELD for hold in holds.values()))
    closings = [reservation_id for name, reservation_id in stand.billing.calls if name in ("settle", "release")]
    assert sorted(closings) == sorted(holds)
    assert len(stand.edge._holds) == len(stand.edge._outbox) == len(stand.edge._inference._streams) == 0


async def test_drain_lets_streams_finish_and_refuses_new_ones(make_stand: Make) -> None:
    stand = await make_stand(drain_s=30)
    script = Paused([accepted(), data(HELLO)], [end()])
    stand.router.script = script
    reader, writer = await stand.open_raw(stand.body(stream=True))
    await reader.readuntil(b"Hello")
    draining = asyncio.create_task(stand.edge.drain())
    await eventually(lambda: stand.edge._admission.draining)
    assert (await stand.get("/readyz")).status == 503
    refused = await stand.post()
    assert (refused.status, refused.error["code"]) == (503, "overloaded")
    assert not draining.done()
    script.go.set()
    await reader.readuntil(b"data: [DONE]\n\n")
    await draining
    writer.close()
    assert stand.billing.names() == ["reserve", "settle"]
    assert stand.outbox_files() == []


async def test_a_stream_that_outlasts_the_drain_gets_an_error_event(make_stand: Make) -> None:
    stand = await make_stand(drain_s=0.1)
    script = Paused([accepted(), data(HELLO)], [end()])
    stand.router.script = script
    reader, writer = await stand.open_raw(stand.body(stream=True))
    await reader.readuntil(b"Hello")
    await stand.edge.drain()
    rest = await reader.read()
    assert b'"code":"overloaded"' in rest
    assert b"[DONE]" not in rest
    writer.close()
    assert stand.billing.names() == ["reserve", "release"]


async def test_an_edge_that_cannot_listen_says_where_and_leaves_nothing(stand: Stand, tmp_path: Path) -> None:
    taken = f"127.0.0.1:{stand.edge.port}"
    section = EdgeSettings(listen=taken, admin_listen="127.0.0.1:0", limits=EdgeLimits(drain_s=0.1))
    second = Edge(Settings(data_dir=tmp_path / "second", edge=section), "token")
    with pytest.raises(OSError, match=r"cannot listen on 127\.0\.0\.1"):
        await second.start()
    await second.drain()
    assert list((tmp_path / "second" / "edge" / "outbox").iterdir()) == []


NO_CONTENT = b'{"choices":[{"index":0,"delta":{"role":"assistant"}}],"pad":"' + b"x" * 6000 + b'"}'


async def test_counts_of_a_superseded_worker_are_never_charged(stand: Stand) -> None:
    first = [accepted("w0"), so_far(500, 40), accepted("w1", attempt=2), data(HELLO)]
    script = Paused(first, [end(12, 5)])
    await leave(stand, script, after=b"Hello")
    await eventually(lambda: stand.metric("orphans") == 1)
    script.go.set()
    await closed(stand, State.RESERVATION_STATE_SETTLED)
    assert stand.billing.only.settled is not None
    charged = stand.billing.only.settled.usage
    assert (charged.prompt_tokens, charged.completion_tokens) == (12, 5)


async def test_frames_without_content_make_nobody_pay_however_many(stand: Stand) -> None:
    script = Paused([accepted(), *[data(NO_CONTENT, content=False) for _ in range(14)]], [data(HELLO), end()])
    await leave(stand, script, after=b"assistant")
    async with asyncio.timeout(1):
        await stand.router.cancelled.wait()
    await closed(stand, State.RESERVATION_STATE_RELEASED)
    assert stand.billing.only.cause == "client_left"


async def test_a_release_tells_the_worker_and_the_attempts(stand: Stand) -> None:
    script = Paused([failure(FailureReason.FAILURE_REASON_UPSTREAM, worker_id="w7", attempts=2)], [])
    script.go.set()
    stand.router.script = script
    assert (await stand.post()).status == 502
    await closed(stand, State.RESERVATION_STATE_RELEASED)
    assert (stand.billing.only.worker_id, stand.billing.only.attempts) == ("w7", 2)


async def test_a_worker_that_once_reported_early_does_not_lift_the_bound_for_good(make_stand: Make) -> None:
    stand = await make_stand(max_orphans_per_key=1)
    told = Paused([accepted(), so_far(12, 1), data(HELLO)], [])
    await leave(stand, told, after=b"Hello")
    await eventually(lambda: stand.metric("open_requests") == 0)
    silent = Paused([accepted(), data(HELLO)], [end()])
    await leave(stand, silent, after=b"Hello")
    await eventually(lambda: stand.metric("orphans") == 1)
    refused = await stand.post(stand.body(stream=True))
    assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
    silent.go.set()
    await eventually(lambda: stand.metric("orphans") == 0)


async def test_a_reader_that_always_takes_a_little_is_cut_when_the_time_is_over(make_stand: Make) -> None:
    stand = await make_stand(reader_stall_s=0.1, request_timeout_s=0.2)
    big = b'{"choices":[{"index":0,"delta":{"content":"%b"}}]}' % (b"x" * 200_000)

    async def script(_item: GenerateItem) -> AsyncIterator[Frame]:
        yield accepted()
        yield so_far(12, 1)
        while True:
            yield data(big)

    stand.router.script = script
    reader, writer = await stand.open_raw(stand.body(stream=True))
    # Slower than what comes from the router, whatever the system would take for it.
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(10):
            while await reader.read(1_000):
                await asyncio.sleep(0)
    await closed_after_hold(stand)
    settled = stand.billing.only.settled
    assert settled is not None
    # Not the deadline of the call to the router, which comes later.
    assert settled.ending == Ending.ENDING_CLIENT_LEFT
    writer.close()
