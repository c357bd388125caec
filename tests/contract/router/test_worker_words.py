"""What a worker says of itself and of failures, over real HTTP: which of it the caller gets to see."""

from typing import Any

import pytest
from speedinfer.router.v1 import frame_pb2

from tests.contract.router.gateway import MODEL, Gateway
from tests.fakes import scripts
from tests.fakes.worker import FakeWorker

HELLO = scripts.delta(MODEL, content="Hello")
FINISH = scripts.delta(MODEL, finish_reason="stop")
USAGE = scripts.frame(MODEL, choices=[], usage=scripts.usage(12, 1))


def error_event(data: str) -> bytes:
    """An event that is an error by its name alone."""
    return scripts.chunk(f"event: error\ndata: {data}\n\n".encode())


@pytest.mark.parametrize("data", ["engine died", '{"message":"engine died"}', "[DONE]"])
async def test_an_event_named_error_ends_a_stream_as_a_failure(gateway: Gateway, worker: FakeWorker, data: str) -> None:
    worker.scripts[MODEL] = scripts.stream(HELLO, FINISH, USAGE, error_event(data))
    await gateway.register(worker.url)
    answer = await gateway.generate()
    assert answer.failure is not None
    assert answer.failure.reason == frame_pb2.FAILURE_REASON_UPSTREAM
    assert answer.end is None
    assert not any(b"died" in payload for payload in answer.payloads)
    assert "died" not in answer.failure.message


async def test_an_event_named_error_that_comes_first_has_its_codes_meaning(
    gateway: Gateway, worker: FakeWorker
) -> None:
    worker.scripts[MODEL] = scripts.stream(error_event('{"message":"too hot","code":400}'))
    await gateway.register(worker.url)
    failure = (await gateway.generate()).failure
    assert failure is not None
    assert (failure.reason, failure.message) == (frame_pb2.FAILURE_REASON_REJECTED, "too hot")


@pytest.mark.parametrize("frame", [{"error": {}}, {"error": ""}])
async def test_an_empty_error_is_one(gateway: Gateway, worker: FakeWorker, frame: Any) -> None:
    worker.scripts[MODEL] = scripts.stream(HELLO, frame, FINISH, USAGE)
    await gateway.register(worker.url)
    answer = await gateway.generate()
    assert answer.failure is not None
    assert answer.failure.reason == frame_pb2.FAILURE_REASON_UPSTREAM


@pytest.mark.parametrize("stream", [True, False])
async def test_the_workers_own_credentials_and_address_are_not_told(
    gateway: Gateway, worker: FakeWorker, stream: bool
) -> None:
    where = f"127.0.0.1:{worker.port}"
    text = f"Invalid key worker-secret-key-123 of team blue-team (Basic-ish dXNlcg) at {where}"
    config = {
        "api_key": "worker-secret-key-123",
        "headers": {"X-Team": "blue-team", "X-Auth": "Basic-ish dXNlcg"},
    }
    await gateway.register(worker.url, config=config)
    shown = "Invalid key *** of team *** (***) at ***"
    body = {"error": {"message": text, "code": "blue-team", "param": "worker-secret-key-123"}}
    inside = {"error": {**body["error"], "code": 400}}
    for script in ([scripts.json_answer(body, 400)], [scripts.json_answer(inside)], scripts.stream(inside)):
        worker.scripts[MODEL] = script
        failure = (await gateway.generate(stream=stream)).failure
        assert failure is not None
        if failure.reason == frame_pb2.FAILURE_REASON_REJECTED:
            assert failure.message == shown
        assert "secret" not in str(failure)
        assert "blue" not in str(failure)


async def test_bytes_that_are_no_text_are_no_answer(gateway: Gateway, worker: FakeWorker) -> None:
    bad = b'{"choices":[{"index":0,"delta":{"content":"\xed\xa0\x80"},"message":{"content":"\xed\xa0\x80"}}]}'
    await gateway.register(worker.url)
    for script in (
        [scripts.SSE_HEAD, scripts.chunk(b"data: " + bad + b"\n\n"), scripts.LAST_CHUNK],
        [scripts.answer(200, bad)],
    ):
        worker.scripts[MODEL] = script
        answer = await gateway.generate(stream=script[0] is scripts.SSE_HEAD)
        assert answer.failure is not None
        assert answer.failure.reason == frame_pb2.FAILURE_REASON_INVALID_RESPONSE
        assert answer.payloads == []


async def test_extras_of_a_frame_without_choices_reach_the_client(gateway: Gateway, worker: FakeWorker) -> None:
    extra = {"id": "a", "choices": [], "usage": None, "prompt_filter_results": [{"hate": 0}]}
    last = {"id": "a", "choices": [], "usage": scripts.usage(12, 1), "more": 1}
    worker.scripts[MODEL] = scripts.stream(extra, HELLO, FINISH, last)
    await gateway.register(worker.url)
    answer = await gateway.generate()
    assert answer.payloads[0] == b'{"id":"a","choices":[],"prompt_filter_results":[{"hate":0}]}'
    assert answer.payloads[-1] == b'{"id":"a","choices":[],"more":1}'
    assert all(b'"usage"' not in payload for payload in answer.payloads)
    assert answer.end is not None
    assert b'"usage"' in answer.end.usage_frame
    assert b'"more"' not in answer.end.usage_frame
