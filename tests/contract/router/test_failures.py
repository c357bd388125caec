"""Requests that go wrong, through a real router to scripted HTTP workers: who tries again, and what the caller is told."""

import asyncio
from typing import Any

import pytest
from speedinfer.router.v1 import frame_pb2, inference_pb2
from speedinfer.router.v1.fleet_pb2 import (
    FEATURE_CHOICES,
    FEATURE_LOGPROBS,
    WORKER_STATUS_HEALTHY,
    WORKER_STATUS_MISCONFIGURED,
)

from services.router.transport import kept_connections
from tests.contract.router.gateway import MODEL, Answer, Gateway, item
from tests.fakes import scripts
from tests.fakes.scripts import Close, HalfClose, Hang, Received, Reset, Step
from tests.fakes.worker import FakeWorker

ROLE = scripts.delta(MODEL, role="assistant", content="")
HELLO = scripts.delta(MODEL, content="Hello")
FINISH = scripts.delta(MODEL, finish_reason="stop")
USAGE = scripts.frame(MODEL, choices=[], usage=scripts.usage(12, 1))


def failed(answer: Answer) -> frame_pb2.Failure:
    """The failure of an answer that has one, and nothing that counts."""
    assert answer.failure is not None, answer.kinds
    assert answer.end is None
    return answer.failure


@pytest.mark.parametrize(
    "script",
    [
        [Reset()],
        [Close()],
        scripts.stream(ROLE, Reset()),
        scripts.stream(ROLE, Close()),
        scripts.stream(ROLE, FINISH, Close()),
        scripts.stream({"error": "engine died"}),
        scripts.stream(ROLE, {"error": {"message": "x", "code": 500}}),
        scripts.stream({"object": "error", "message": "x"}),
        scripts.stream("{not json"),
        scripts.stream("[1]"),
        [scripts.json_answer({"error": {"message": "x"}}, 500)],
        [scripts.json_answer({"error": {"message": "x"}}, 503)],
        [scripts.json_answer({"error": {"message": "x"}}, 429)],
        [scripts.json_answer({"error": {"message": "x"}}, 404)],
        [scripts.json_answer({"error": {"message": "x"}}, 401)],
        [scripts.answer(302, b"", Location="http://127.0.0.1:1/")],
        [scripts.answer(200, b"<html>", "text/html")],
        [scripts.json_answer({"error": {"message": "x", "code": 503}})],
        [scripts.answer(200, b"data: x\n\n", "text/event-stream", Content_Encoding="gzip")],
        scripts.stream(scripts.delta(MODEL, finish_reason="abort"), USAGE),
    ],
    ids=str,
)
async def test_another_worker_takes_over_before_content(
    gateway: Gateway, worker: FakeWorker, second: FakeWorker, script: scripts.Script
) -> None:
    worker.scripts[MODEL] = script
    await gateway.register(worker.url, "bad", config={"weight": 1000})
    await gateway.register(second.url, "good")
    # The good one looks busy, so that the bad one is picked first.
    busy = gateway.worker("good").take(0.0)
    answer = await gateway.generate()
    busy.release()
    assert answer.counts == (12, 5)
    assert answer.text == "Hello, world! Bye."
    assert answer.accepted[-1].worker_id == "good"
    # A kept connection that closes without a byte may be only stale: such a request is made once more.
    dispatches = 2 if isinstance(script, list) and isinstance(script[0], Reset | Close) else 1
    assert answer.accepted[-1].attempt == dispatches + 1
    assert len(worker.requests) == dispatches


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (scripts.stream(HELLO, Reset()), frame_pb2.FAILURE_REASON_UPSTREAM),
        (scripts.stream(HELLO, Close()), frame_pb2.FAILURE_REASON_UPSTREAM),
        (scripts.stream(HELLO, HalfClose(), Close()), frame_pb2.FAILURE_REASON_UPSTREAM),
        (scripts.stream(HELLO), frame_pb2.FAILURE_REASON_UPSTREAM),
        (scripts.stream(HELLO, {"error": {"code": 400}}), frame_pb2.FAILURE_REASON_UPSTREAM),
        (scripts.stream(HELLO, FINISH, USAGE, {"error": "late"}), frame_pb2.FAILURE_REASON_UPSTREAM),
        (scripts.stream(HELLO, "{"), frame_pb2.FAILURE_REASON_INVALID_RESPONSE),
        (scripts.stream(HELLO, scripts.delta(MODEL, finish_reason="abort"), USAGE), frame_pb2.FAILURE_REASON_UPSTREAM),
        (scripts.stream(HELLO, FINISH), frame_pb2.FAILURE_REASON_USAGE_MISSING),
        (
            scripts.stream(HELLO, FINISH, scripts.frame(MODEL, choices=[], usage={"prompt_tokens": -1})),
            frame_pb2.FAILURE_REASON_USAGE_MISSING,
        ),
    ],
    ids=str,
)
async def test_nothing_is_tried_again_after_content(
    gateway: Gateway, worker: FakeWorker, second: FakeWorker, script: scripts.Script, reason: int
) -> None:
    worker.scripts[MODEL] = second.scripts[MODEL] = script
    await gateway.register(worker.url, "a")
    await gateway.register(second.url, "b")
    answer = await gateway.generate()
    failure = failed(answer)
    assert failure.reason == reason
    assert failure.attempts == 1
    assert answer.text == "Hello"
    assert len(worker.requests) + len(second.requests) == 1


async def test_a_reset_after_all_was_said_takes_nothing_back(gateway: Gateway, worker: FakeWorker) -> None:
    worker.scripts[MODEL] = scripts.stream(HELLO, FINISH, USAGE, Reset())
    await gateway.register(worker.url)
    assert (await gateway.generate()).counts == (12, 1)


@pytest.mark.parametrize(
    ("status", "body", "message", "code", "param"),
    [
        (
            400,
            {"object": "error", "message": "temperature too hot", "param": None, "code": 400},
            "temperature too hot",
            "",
            "",
        ),
        (400, {"error": "1 validation error: top_x"}, "1 validation error: top_x", "", ""),
        (422, {"detail": [{"loc": ["body", "n"], "msg": "too many", "type": "x"}]}, "n: too many", "", "n"),
        (413, {"detail": "body too big"}, "body too big", "", ""),
        (400, {"error": {"message": "m", "param": "seed", "code": "bad_seed"}}, "m", "bad_seed", "seed"),
        (501, {"error": {"message": "no chats"}}, "no chats", "", ""),
    ],
)
async def test_what_the_worker_refuses_is_passed_on(
    gateway: Gateway, worker: FakeWorker, status: int, body: Any, message: str, code: str, param: str
) -> None:
    worker.scripts[MODEL] = [scripts.json_answer(body, status)]
    await gateway.register(worker.url)
    for _ in range(6):
        failure = failed(await gateway.generate())
        assert failure.reason == frame_pb2.FAILURE_REASON_REJECTED
        assert (failure.message, failure.code, failure.param) == (message, code, param)
        assert failure.http_status == (400 if status == 501 else status)
    # However many clients are wrong, the worker is not.
    assert gateway.worker().admits(0.0)


async def test_back_pressure_of_the_only_worker_says_when_to_come_back(gateway: Gateway, worker: FakeWorker) -> None:
    worker.scripts[MODEL] = [scripts.json_answer({}, 429, Retry_After="7")]
    await gateway.register(worker.url)
    for _ in range(6):
        failure = failed(await gateway.generate())
        assert failure.reason == frame_pb2.FAILURE_REASON_OVERLOADED
        assert failure.retry_after_ms == 7000
    assert gateway.worker().admits(0.0)


async def test_nothing_of_the_workers_inside_is_told(gateway: Gateway, worker: FakeWorker) -> None:
    text = f'bad Traceback (most recent call last): File "/opt/secret.py", line 3 at {worker.url} with sk-abcdefghijkl'
    worker.scripts[MODEL] = [scripts.json_answer({"error": {"message": text}}, 400)]
    await gateway.register(worker.url)
    assert failed(await gateway.generate()).message == "bad"
    worker.scripts[MODEL] = [scripts.json_answer({"error": {"message": f"see {worker.url} and 10.0.0.7:9000"}}, 400)]
    assert failed(await gateway.generate()).message == "see *** and ***"
    worker.scripts[MODEL] = [scripts.json_answer({"error": {"message": text}}, 500)]
    assert failed(await gateway.generate()).message == "the worker failed to answer the request"


async def test_a_bound_of_ours_that_does_not_fit_is_left_out(gateway: Gateway, worker: FakeWorker) -> None:
    refusal = scripts.json_answer({"error": {"message": "maximum context length is 100 tokens"}}, 400)
    good = scripts.chat_stream(MODEL, ["Hi"], scripts.usage(90, 1))
    worker.scripts[MODEL] = lambda request: [refusal] if "max_tokens" in request.json else good
    await gateway.register(worker.url)
    answer = await gateway.generate(output_limit=50, output_limit_is_ours=True)
    assert answer.counts == (90, 1)
    assert answer.accepted[0].attempt == 2
    theirs = failed(await gateway.generate(output_limit=50))
    assert theirs.code == "context_length_exceeded"
    assert [("max_tokens" in request.json) for request in worker.requests] == [True, False, True]


async def test_another_worker_gets_the_bound_again(gateway: Gateway, worker: FakeWorker, second: FakeWorker) -> None:
    def script(request: Received) -> list[Step]:
        bounds.append("max_tokens" in request.json)
        return answers[len(bounds) - 1]

    refusal = scripts.json_answer({"error": {"message": "maximum context length is 100 tokens"}}, 400)
    answers = [
        [refusal],
        [scripts.json_answer({}, 503)],
        [refusal],
        scripts.chat_stream(MODEL, ["Hi"], scripts.usage(9, 1)),
    ]
    bounds: list[bool] = []
    worker.scripts[MODEL] = second.scripts[MODEL] = script
    await gateway.register(worker.url, "a")
    await gateway.register(second.url, "b")
    answer = await gateway.generate(output_limit=50, output_limit_is_ours=True)
    assert answer.counts == (9, 1)
    assert bounds == [True, False, True, False]
    assert sorted([len(worker.requests), len(second.requests)]) == [2, 2]


async def test_a_whole_answer_without_usage_is_not_delivered(
    gateway: Gateway, worker: FakeWorker, second: FakeWorker
) -> None:
    body = scripts.json_answer(scripts.chat_whole(MODEL, "Hello", None))
    worker.scripts[MODEL] = second.scripts[MODEL] = [body]
    await gateway.register(worker.url, "a")
    await gateway.register(second.url, "b")
    answer = await gateway.generate(stream=False)
    assert failed(answer).reason == frame_pb2.FAILURE_REASON_USAGE_MISSING
    assert answer.payloads == []
    assert len(worker.requests) + len(second.requests) == 1


async def test_three_answers_in_a_row_without_usage_make_a_worker_misconfigured(
    gateway: Gateway, worker: FakeWorker
) -> None:
    await gateway.register(worker.url)
    good, bad = scripts.chat_stream(MODEL, ["x"], scripts.usage(1, 1)), scripts.chat_stream(MODEL, ["x"], None)
    for script in (bad, bad, good, bad, bad):
        worker.scripts[MODEL] = script
        await gateway.generate()
    assert gateway.worker().health.status == WORKER_STATUS_HEALTHY
    await gateway.generate()
    assert gateway.worker().health.status == WORKER_STATUS_MISCONFIGURED
    assert "reports no usage" in gateway.worker().health.finding.detail
    assert failed(await gateway.generate()).reason == frame_pb2.FAILURE_REASON_NO_WORKER


@pytest.mark.parametrize(
    ("script", "config", "deadline"),
    [
        ([Hang()], {"first_token_timeout_s": 0.2}, "first token"),
        (scripts.stream(ROLE, Hang()), {"first_token_timeout_s": 0.2}, "first token"),
        (scripts.stream(HELLO, Hang()), {"idle_timeout_s": 0.2}, "idle"),
        (scripts.stream(HELLO, Hang()), {"total_timeout_s": 0.2}, "total"),
        ([Hang()], {"total_timeout_s": 0.2}, "total"),
    ],
    ids=str,
)
async def test_deadlines_have_their_own_words(
    gateway: Gateway, worker: FakeWorker, script: scripts.Script, config: dict[str, Any], deadline: str
) -> None:
    worker.scripts[MODEL] = script
    await gateway.register(worker.url, config=config)
    failure = failed(await gateway.generate())
    assert failure.reason == frame_pb2.FAILURE_REASON_TIMEOUT
    assert failure.deadline == deadline
    assert f"{deadline} deadline" in failure.message
    await worker.requests[0].disconnected.wait()


async def test_the_requests_own_deadline_is_kept_without_a_stream(gateway: Gateway, worker: FakeWorker) -> None:
    worker.scripts[MODEL] = [Hang()]
    await gateway.register(worker.url, config={"first_token_timeout_s": 0.05})
    failure = failed(await gateway.generate(stream=False, remaining_ms=200))
    assert failure.deadline == "total"


async def test_comments_keep_a_stream_alive_but_are_no_token(gateway: Gateway, worker: FakeWorker) -> None:
    comments = [scripts.chunk(b": still here\n\n"), scripts.Pause(0.1)] * 5
    worker.scripts[MODEL] = scripts.stream(HELLO, *comments, FINISH, USAGE)
    await gateway.register(worker.url, config={"idle_timeout_s": 0.3})
    assert (await gateway.generate()).counts == (12, 1)
    worker.scripts[MODEL] = scripts.stream(*comments, HELLO, FINISH, USAGE)
    await gateway.register(worker.url, config={"first_token_timeout_s": 0.3})
    assert failed(await gateway.generate()).deadline == "first token"


async def test_a_caller_that_leaves_drops_the_worker(gateway: Gateway, worker: FakeWorker) -> None:
    await gateway.register(worker.url)
    for script in ([Hang()], scripts.stream(ROLE, Hang()), scripts.stream(HELLO, Hang())):
        for stream in (True, False):
            worker.requests.clear()
            worker.scripts[MODEL] = script
            call = gateway.inference.Generate(inference_pb2.GenerateRequest(item=item(stream=stream)))
            reader = asyncio.ensure_future(call.read())
            request = await worker.received(1)
            call.cancel()
            async with asyncio.timeout(1.0):
                await request.disconnected.wait()
                await gateway.until_free()
            await asyncio.gather(reader, return_exceptions=True)
    assert gateway.worker().in_flight == 0


async def test_a_caller_that_leaves_in_the_same_instant_leaves_nothing_behind(
    gateway: Gateway, worker: FakeWorker
) -> None:
    await gateway.register(worker.url)
    request = gateway.router.dispatcher.start(item())
    pulling = asyncio.ensure_future(request.next_frames())
    while not gateway.worker().in_flight:
        await asyncio.sleep(0)
    request.leave()
    pulling.cancel()
    await asyncio.gather(pulling, return_exceptions=True)
    await gateway.until_free()
    assert gateway.worker().in_flight == 0


async def test_a_caller_that_reads_slowly_does_not_stop_the_total_deadline(
    gateway: Gateway, worker: FakeWorker
) -> None:
    worker.scripts[MODEL] = scripts.stream(HELLO, scripts.Pause(0.3), HELLO, FINISH, USAGE)
    await gateway.register(worker.url, config={"idle_timeout_s": 0.05})
    request = gateway.router.dispatcher.start(item(remaining_ms=250))
    frames = await request.next_frames()
    while not any(frame.HasField("data") for frame in frames):
        frames = await request.next_frames()
    # The idle deadline does not run while nobody asks for more; the total one does.
    await worker.requests[0].answered.wait()
    [frame] = await request.next_frames()
    assert frame.failure.deadline == "total"
    assert await request.next_frames() == []


async def test_a_caller_that_does_not_read_stops_its_own_worker(gateway: Gateway, worker: FakeWorker) -> None:
    big = scripts.delta(MODEL, content="x" * 100_000)
    worker.scripts[MODEL] = scripts.stream(HELLO, *[big] * 200, FINISH, USAGE)
    await gateway.register(worker.url)
    request = gateway.router.dispatcher.start(item())
    await request.next_frames()
    # Others are served meanwhile, and what is held for this one is bounded.
    worker.scripts[MODEL] = scripts.chat_stream(MODEL, ["Hi"], scripts.usage(4, 1))
    assert (await gateway.generate()).counts == (4, 1)
    reading = request._reading
    assert reading is not None
    assert reading._bytes <= 3 * 100_000
    received = 0
    while frames := await request.next_frames():
        received += sum(len(payload) for frame in frames for payload in frame.data.payloads)
    assert received > 200 * 100_000


async def test_a_connection_that_went_stale_is_made_anew(gateway: Gateway, worker: FakeWorker) -> None:
    await gateway.register(worker.url)
    assert (await gateway.generate()).counts == (12, 5)
    good = scripts.chat_stream(MODEL, ["Hi"], scripts.usage(4, 1))
    # As if the worker's keep-alive had ended in the very moment of the request.
    worker.scripts[MODEL] = lambda _: [Close()] if len(worker.requests) == 2 else good
    answer = await gateway.generate()
    assert answer.counts == (4, 1)
    assert answer.accepted[0].attempt == 2
    assert gateway.router.metrics.stale_connections._value.get() == 1
    # A fresh connection that is closed is a failure, though.
    worker.scripts[MODEL] = [Close()]
    assert failed(await gateway.generate()).reason == frame_pb2.FAILURE_REASON_UPSTREAM


async def test_a_worker_that_breaks_off_later_had_the_request(
    gateway: Gateway, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await gateway.register(worker.url)
    assert (await gateway.generate()).counts == (12, 5)
    monkeypatch.setattr(kept_connections, "STALE_WITHIN_S", 0.05)
    worker.scripts[MODEL] = [scripts.Pause(0.1), Reset()]
    failure = failed(await gateway.generate())
    assert failure.attempts == 1
    assert len(worker.requests) == 2
    assert gateway.router.metrics.stale_connections._value.get() == 0


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (201, frame_pb2.FAILURE_REASON_INVALID_RESPONSE, "status 201 where only 200 is an answer"),
        (204, frame_pb2.FAILURE_REASON_INVALID_RESPONSE, "status 204 where only 200 is an answer"),
        (307, frame_pb2.FAILURE_REASON_UPSTREAM, "redirects are not followed"),
        (404, frame_pb2.FAILURE_REASON_UPSTREAM, "does not accept the gateway's requests"),
    ],
)
async def test_a_status_that_is_no_answer_is_called_what_it_is(
    gateway: Gateway, worker: FakeWorker, status: int, reason: int, words: str
) -> None:
    worker.scripts[MODEL] = [scripts.answer(status, b"")]
    await gateway.register(worker.url)
    failure = failed(await gateway.generate())
    assert failure.reason == reason
    assert words in failure.message


async def test_no_worker_and_no_model(gateway: Gateway, worker: FakeWorker) -> None:
    assert failed(await gateway.generate()).reason == frame_pb2.FAILURE_REASON_MODEL_NOT_FOUND
    await gateway.register(worker.url, config={"max_concurrency": 1}, runtime="llama.cpp")
    worker.scripts[MODEL] = scripts.stream(HELLO, Hang())
    call = gateway.inference.Generate(inference_pb2.GenerateRequest(item=item()))
    await call.read()
    assert failed(await gateway.generate()).reason == frame_pb2.FAILURE_REASON_OVERLOADED
    call.cancel()
    await gateway.until_free()
    requirement = inference_pb2.Requirement(feature=FEATURE_CHOICES, param="n")
    refused = failed(await gateway.generate(requirements=[requirement]))
    assert refused.reason == frame_pb2.FAILURE_REASON_UNSUPPORTED
    assert refused.param == "n"
    assert FEATURE_LOGPROBS in gateway.worker().features
    await worker.stop()
    assert failed(await gateway.generate()).message == "the worker cannot be reached"


async def test_a_line_or_an_answer_over_the_bound(gateway: Gateway, worker: FakeWorker) -> None:
    await gateway.register(worker.url)
    endless = b"data: " + b"x" * 65536
    worker.scripts[MODEL] = [scripts.SSE_HEAD, *[scripts.chunk(endless)] * 40, Hang()]
    assert failed(await gateway.generate()).reason == frame_pb2.FAILURE_REASON_INVALID_RESPONSE
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n"
    worker.scripts[MODEL] = [head, Hang()]
    assert failed(await gateway.generate(stream=False)).reason == frame_pb2.FAILURE_REASON_ANSWER_TOO_LARGE


async def test_the_circuit_opens_and_lets_one_request_try(gateway: Gateway, worker: FakeWorker) -> None:
    worker.scripts[MODEL] = [scripts.json_answer({}, 500)]
    await gateway.register(worker.url)
    for _ in range(5):
        assert failed(await gateway.generate()).reason == frame_pb2.FAILURE_REASON_UPSTREAM
    assert failed(await gateway.generate()).reason == frame_pb2.FAILURE_REASON_NO_WORKER
    assert len(worker.requests) == 5
    fleet = await gateway.fleet()
    assert fleet.workers[0].circuit == "open"
