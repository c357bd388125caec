"""Money and the last bytes of an answer: which comes first, and what a client is told when money fails."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from speedinfer.billing.v1.reservation_pb2 import Ending, ReservationState, SettleStatus
from speedinfer.router.v1.frame_pb2 import FailureReason, Frame
from speedinfer.router.v1.inference_pb2 import GenerateItem

from services.edge import settlement
from tests.fakes import scripted_billing
from tests.fakes.scripted_router import WORKER, accepted, data, end, failure
from tests.unit.edge.conftest import Make, Stand, eventually

ROLE = b'{"id":"c1","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}'
HELLO = b'{"id":"c1","choices":[{"index":0,"delta":{"content":"Hello"}}],"odd":  1}'
STOP = b'{"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
USAGE = b'{"id":"c1","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17,"x":{"y":1}}}'
WHOLE = b'{"id": "c1", "choices": [{"message": {"content": "Hello"}}], "usage": {"prompt_tokens": 12, "completion_tokens": 5}}'


async def well(item: GenerateItem) -> AsyncIterator[Frame]:
    yield accepted()
    if not item.stream:
        yield data(WHOLE)
        yield end()
        return
    yield data(ROLE, content=False)
    yield data(HELLO)
    yield data(STOP, content=False)
    yield end(frame=USAGE)


async def test_a_stream_ends_with_the_usage_that_was_charged(stand: Stand) -> None:
    stand.router.script = well
    answer = await stand.post(stand.body(stream=True))
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.events
    assert events[:3] == [ROLE.decode(), HELLO.decode(), STOP.decode()]
    assert events[4:] == ["[DONE]"]
    last = json.loads(events[3])
    assert last["choices"] == [{"index": 0, "delta": {}, "finish_reason": None}]
    assert '"cost":0.000005400' in events[3]
    assert last["usage"]["x"] == {"y": 1}
    hold = stand.billing.only
    assert hold.state == ReservationState.RESERVATION_STATE_SETTLED
    assert hold.settled is not None
    assert (hold.settled.usage.prompt_tokens, hold.settled.usage.completion_tokens) == (12, 5)
    assert hold.settled.worker_id == WORKER
    assert hold.settled.ending == Ending.ENDING_COMPLETED
    assert stand.billing.names() == ["reserve", "settle"]
    assert answer.headers["x-request-id"] == stand.router.items[0].context.request_id
    assert answer.headers["x-speedinfer-worker"] == WORKER


async def test_the_hold_s_output_limit_is_always_sent(stand: Stand) -> None:
    stand.router.script = well
    await stand.post(stand.body(max_tokens=5))
    await stand.post()
    first, second = stand.router.items
    assert (first.output_limit, first.output_limit_is_ours) == (scripted_billing.OUTPUT_LIMIT, False)
    assert (second.output_limit, second.output_limit_is_ours) == (scripted_billing.OUTPUT_LIMIT, True)
    assert [member.name for member in first.members] == ["messages"]


@pytest.mark.parametrize(("options", "choices"), [({"include_usage": True}, []), ({"include_usage": False}, None)])
async def test_the_usage_frame_is_what_the_client_wished(stand: Stand, options: Any, choices: Any) -> None:
    stand.router.script = well
    answer = await stand.post(stand.body(stream=True, stream_options=options))
    usage = [json.loads(event) for event in answer.events if '"usage"' in event]
    assert [frame["choices"] for frame in usage] == ([] if choices is None else [choices])
    assert answer.events[-1] == "[DONE]"
    assert stand.billing.only.settled is not None


async def test_a_whole_answer_keeps_its_bytes_and_gets_the_cost(stand: Stand) -> None:
    stand.router.script = well
    answer = await stand.post()
    expected = b'{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17,"cost":0.000005400}}'
    assert answer.body == WHOLE[: WHOLE.index(b'{"prompt')] + expected
    assert stand.billing.names() == ["reserve", "settle"]


@pytest.mark.parametrize("stream", [True, False])
async def test_nothing_ends_before_billing_has_answered(make_stand: Make, stream: bool) -> None:
    stand = await make_stand(settle_wait_s=30)
    stand.router.script = well
    stand.billing.settles.clear()
    asking = asyncio.create_task(stand.post(stand.body(stream=stream)))
    await eventually(lambda: "settle" in stand.billing.names())
    # Before it was sent, the settlement was in the outbox.
    lines = b"".join(path.read_bytes() for path in stand.outbox_files())
    assert list(settlement.read_lines(lines)[0]) == [stand.billing.calls[-1][1]]
    done, _ = await asyncio.wait([asking], timeout=0.1)
    assert not done
    stand.billing.settles.set()
    answer = await asking
    assert b"0.000005400" in answer.body


@pytest.mark.parametrize("stream", [True, False])
async def test_without_billing_the_outbox_is_synced_first(
    make_stand: Make, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = await make_stand(settle_wait_s=0.05)
    stand.router.script = well
    stand.billing.settles.clear()
    synced: list[int] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(len(answers))
        fsync(descriptor)

    answers: list[Any] = []
    monkeypatch.setattr(os, "fsync", watched)
    answers.append(await stand.post(stand.body(stream=stream)))
    # The file and its folder, both while there was no answer yet.
    assert synced == [0, 0]
    assert b"cost" not in answers[0].body
    assert b'"total_tokens":17' in answers[0].body
    if stream:
        assert answers[0].events[-1] == "[DONE]"
    stand.billing.settles.set()
    await eventually(lambda: stand.billing.only.settled is not None)
    await eventually(lambda: stand.metric("outbox_settlements") == 0)
    assert "release" not in stand.billing.names()


async def test_missing_usage_is_an_error_event_without_done(stand: Stand) -> None:
    async def script(_item: GenerateItem) -> AsyncIterator[Frame]:
        yield accepted()
        yield data(HELLO)
        yield failure(FailureReason.FAILURE_REASON_USAGE_MISSING, message="The worker reported no usage.")

    stand.router.script = script
    answer = await stand.post(stand.body(stream=True))
    assert answer.status == 200
    assert answer.events[0] == HELLO.decode()
    assert json.loads(answer.events[1])["error"]["code"] == "usage_missing"
    assert len(answer.events) == 2
    assert stand.billing.names() == ["reserve", "release"]
    assert stand.billing.only.cause == "usage_missing"


@pytest.mark.parametrize("counts", [(None, 5), (12, None), (12, -1), (2**31, 5)])
async def test_impossible_usage_is_missing_usage(stand: Stand, counts: tuple[Any, Any]) -> None:
    async def script(_item: GenerateItem) -> AsyncIterator[Frame]:
        yield accepted()
        yield data(WHOLE)
        yield end(*counts)

    stand.router.script = script
    answer = await stand.post()
    assert (answer.status, answer.error["code"]) == (502, "usage_missing")
    assert answer.headers["x-should-retry"] == "false"
    assert stand.billing.names() == ["reserve", "release"]


async def test_a_failure_before_content_is_an_http_error(stand: Stand) -> None:
    async def script(_item: GenerateItem) -> AsyncIterator[Frame]:
        yield accepted()
        yield data(ROLE, content=False)
        yield failure(FailureReason.FAILURE_REASON_REJECTED, message="too long", http_status=422, param="messages")

    stand.router.script = script
    answer = await stand.post(stand.body(stream=True))
    assert (answer.status, answer.error["message"], answer.error["param"]) == (422, "too long", "messages")
    assert stand.billing.names() == ["reserve", "release"]


async def test_a_router_that_dies_is_no_success(stand: Stand) -> None:
    async def script(_item: GenerateItem) -> AsyncIterator[Frame]:
        yield accepted()
        yield data(HELLO)

    stand.router.script = script
    answer = await stand.post(stand.body(stream=True))
    assert json.loads(answer.events[1])["error"]["code"] == "upstream_error"
    assert len(answer.events) == 2
    assert stand.billing.names() == ["reserve", "release"]


@pytest.mark.parametrize(
    "status",
    [
        SettleStatus.SETTLE_STATUS_CONFLICT,
        SettleStatus.SETTLE_STATUS_UNKNOWN,
        SettleStatus.SETTLE_STATUS_INVALID,
        SettleStatus.SETTLE_STATUS_ID_EXPIRED,
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_settlement_that_is_refused_is_quarantined(
    stand: Stand, status: SettleStatus.ValueType, stream: bool
) -> None:
    stand.router.script = well
    stand.billing.settle_status = status
    answer = await stand.post(stand.body(stream=stream))
    if stream:
        assert json.loads(answer.events[-1])["error"]["code"] == "billing_unavailable"
    else:
        assert (answer.status, answer.error["code"]) == (503, "billing_unavailable")
    assert stand.metric("settlements_quarantined_total") == 1
    kept = (stand.data_dir / "edge" / "quarantine.jsonl").read_bytes()
    assert json.loads(kept)["settle"]["prompt_tokens"] == 12
    assert stand.billing.names() == ["reserve", "settle"]


async def test_a_success_without_content_still_has_headers_and_done(stand: Stand) -> None:
    async def script(_item: GenerateItem) -> AsyncIterator[Frame]:
        yield accepted()
        yield data(STOP, content=False)
        yield end(12, 0)

    stand.router.script = script
    answer = await stand.post(stand.body(stream=True))
    assert answer.events[0] == STOP.decode()
    assert json.loads(answer.events[1])["usage"]["completion_tokens"] == 0
    assert answer.events[2] == "[DONE]"


async def test_a_silent_stream_gets_headers_and_comments(make_stand: Make) -> None:
    stand = await make_stand(heartbeat_s=0.05)
    go = asyncio.Event()

    async def script(_item: GenerateItem) -> AsyncIterator[Frame]:
        yield accepted()
        await go.wait()
        yield data(HELLO)
        yield end(frame=USAGE)

    stand.router.script = script
    reader, writer = await stand.open_raw(stand.body(stream=True))
    seen = await reader.readuntil(b": keep-alive\n\n")
    assert seen.startswith(b"HTTP/1.1 200")
    await reader.readuntil(b": keep-alive\n\n")
    go.set()
    rest = await reader.readuntil(b"[DONE]\n\n")
    assert HELLO in rest
    writer.close()
    await writer.wait_closed()


async def test_a_failure_after_the_heartbeat_is_an_event(make_stand: Make) -> None:
    stand = await make_stand(heartbeat_s=0.02)
    go = asyncio.Event()

    async def script(_item: GenerateItem) -> AsyncIterator[Frame]:
        await go.wait()
        yield failure(FailureReason.FAILURE_REASON_NO_WORKER)

    stand.router.script = script
    asking = asyncio.create_task(stand.session.post("/v1/chat/completions", json=stand.body(stream=True)))
    response = await asking
    assert response.status == 200
    go.set()
    text = await response.text()
    assert '"code":"no_worker_available"' in text
    assert "[DONE]" not in text
    response.release()
