"""Requests through a real router to a real (scripted) HTTP worker: what the caller gets when all is well."""

import json

from speedinfer.common.v1.operation_pb2 import OPERATION_COMPLETION, OPERATION_EMBEDDING
from speedinfer.router.v1 import frame_pb2

from tests.contract.router.gateway import MODEL, Gateway
from tests.fakes import scripts
from tests.fakes.worker import FakeWorker


async def test_a_stream_is_relayed_byte_for_byte_and_usage_comes_once(gateway: Gateway, worker: FakeWorker) -> None:
    odd = (
        '{ "id":"x",  "model":"'
        + MODEL
        + '", "choices":[{"index":0,"delta":{"content":"h\\u00e9 \\ud83d"},"z":1e400}] }'
    )
    worker.scripts[MODEL] = scripts.stream(
        scripts.delta(MODEL, role="assistant"),
        odd,
        scripts.delta(MODEL, finish_reason="stop"),
        scripts.frame(MODEL, choices=[], usage={**scripts.usage(12, 1, cached=3), "extra": [1]}),
    )
    await gateway.register(worker.url)
    answer = await gateway.generate()
    assert answer.payloads[1] == odd.encode()
    assert all(b'"usage"' not in payload for payload in answer.payloads)
    assert answer.counts == (12, 1)
    assert answer.end is not None
    assert answer.end.usage.cached_prompt_tokens == 3
    frame = json.loads(answer.end.usage_frame)
    assert frame["choices"] == []
    assert frame["usage"]["extra"] == [1]
    assert answer.kinds[0] == "accepted"
    assert answer.kinds[-1] == "end"


async def test_a_whole_answer_is_one_payload_with_its_usage(gateway: Gateway, worker: FakeWorker) -> None:
    await gateway.register(worker.url)
    answer = await gateway.generate(stream=False)
    assert len(answer.payloads) == 1
    assert json.loads(answer.payloads[0])["usage"]["completion_tokens"] == 5
    assert answer.end is not None
    assert answer.end.usage_frame == b""
    assert answer.kinds == ["accepted", "data", "end"]


async def test_completions_and_embeddings(gateway: Gateway, worker: FakeWorker) -> None:
    await gateway.register(worker.url)
    completion = await gateway.generate(operation=OPERATION_COMPLETION, members=[("prompt", b'"Hi"')])
    assert completion.counts == (12, 5)
    embedding = await gateway.generate(
        operation=OPERATION_EMBEDDING, stream=False, members=[("input", b'"Hi"')], output_limit=None
    )
    assert embedding.end is not None
    assert embedding.end.usage.prompt_tokens == 2
    assert not embedding.end.usage.HasField("completion_tokens")
    assert [request.path for request in worker.requests] == ["/v1/completions", "/v1/embeddings"]


async def test_the_workers_model_name_goes_in_and_the_public_one_comes_back(
    gateway: Gateway, worker: FakeWorker
) -> None:
    worker.models = ["llama/own", "other"]
    worker.scripts["llama/own"] = scripts.chat_stream("llama/own", ['say "model":"llama/own"'], scripts.usage(3, 2))
    await gateway.register(worker.url, config={"model_map": {MODEL: "llama/own"}})
    answer = await gateway.generate()
    sent = [scripts.delta("llama/own", role="assistant", content=""),
            scripts.delta("llama/own", content='say "model":"llama/own"'),
            scripts.delta("llama/own", finish_reason="stop")]  # fmt: skip
    expected = [json.dumps({**frame, "model": MODEL}, separators=(",", ":")).encode() for frame in sent]
    assert answer.payloads == expected
    assert worker.requests[0].model == "llama/own"


async def test_what_the_worker_is_sent(gateway: Gateway, worker: FakeWorker) -> None:
    await gateway.register(worker.url, config={"api_key": "its-own-key", "headers": {"X-Team": "blue"}})
    members = [("messages", b'[{"role":"user","content":"\\u00e9 1.0"}]'), ("temperature", b"1.50"), ("top_k", b"3"),
               ("cache_salt", b'"x"'), ("n_predict", b"9"), ("whatever", b"1"), ("stop", b"null")]  # fmt: skip
    answer = await gateway.generate(members=members, output_limit=7)
    request = worker.requests[0]
    assert b'"messages":[{"role":"user","content":"\\u00e9 1.0"}],"temperature":1.50,"top_k":3,' in request.body
    body = request.json
    assert body["max_tokens"] == 7
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert not {"cache_salt", "n_predict", "whatever", "stop", "max_completion_tokens"} & body.keys()
    assert list(answer.accepted[0].ignored_fields) == ["cache_salt", "n_predict", "whatever"]
    assert request.headers["authorization"] == "Bearer its-own-key"
    assert request.headers["x-team"] == "blue"
    assert request.headers["accept-encoding"] == "identity"
    assert "cookie" not in request.headers


async def test_stream_options_are_sent_with_streams_only(gateway: Gateway, worker: FakeWorker) -> None:
    await gateway.register(worker.url, config={"max_tokens_field": "max_completion_tokens"})
    await gateway.generate(stream=False)
    body = worker.requests[0].json
    assert "stream_options" not in body
    assert body["max_completion_tokens"] == 16
    assert "max_tokens" not in body


async def test_cumulative_usage_is_told_while_it_grows_and_the_last_counts(
    gateway: Gateway, worker: FakeWorker
) -> None:
    worker.continuous = True
    detail = await gateway.register(worker.url, config={"check": "token"})
    assert detail.detail == ""
    worker.requests.clear()
    answer = await gateway.generate()
    assert worker.requests[0].json["stream_options"]["continuous_usage_stats"] is True
    assert answer.counts == (12, 5)
    assert all(b'"usage"' not in payload for payload in answer.payloads)
    assert answer.text == "Hello, world! Bye."


async def test_usage_so_far_is_sent_before_the_end(gateway: Gateway, worker: FakeWorker) -> None:
    counted = {**scripts.delta(MODEL, content="Hello"), "usage": scripts.usage(12, 1)}
    final = {**scripts.delta(MODEL, finish_reason="stop"), "usage": scripts.usage(12, 2)}
    worker.scripts[MODEL] = scripts.stream(counted, scripts.Pause(0.05), final)
    await gateway.register(worker.url)
    answer = await gateway.generate()
    assert answer.kinds == ["accepted", "usage", "data", "usage", "data", "end"]
    assert [each.usage.completion_tokens for each in answer.usages] == [1, 2]
    assert answer.counts == (12, 2)
    assert answer.end is not None
    frame = json.loads(answer.end.usage_frame)
    assert frame["choices"] == []
    assert frame["usage"] == scripts.usage(12, 2)


async def test_usage_right_after_done_still_counts(gateway: Gateway, worker: FakeWorker) -> None:
    worker.scripts[MODEL] = scripts.stream(
        scripts.delta(MODEL, content="Hi"),
        scripts.delta(MODEL, finish_reason="stop"),
        scripts.DONE,
        scripts.Pause(0.02),
        scripts.frame(MODEL, choices=[], usage=scripts.usage(4, 1)),
        done=False,
    )
    await gateway.register(worker.url)
    assert (await gateway.generate()).counts == (4, 1)


async def test_an_open_socket_after_done_holds_up_nobody(gateway: Gateway, worker: FakeWorker) -> None:
    worker.scripts[MODEL] = [
        *scripts.chat_stream(MODEL, ["Hi"], scripts.usage(4, 1), last_chunk=False),
        scripts.Hang(),
    ]
    await gateway.register(worker.url, config={"idle_timeout_s": 60})
    assert (await gateway.generate()).counts == (4, 1)
    await worker.requests[0].disconnected.wait()


async def test_a_complete_stream_needs_no_done(gateway: Gateway, worker: FakeWorker) -> None:
    worker.scripts[MODEL] = [
        *scripts.chat_stream(MODEL, ["Hi"], scripts.usage(4, 1), done=False, last_chunk=False),
        scripts.Hang(),
    ]
    await gateway.register(worker.url, config={"idle_timeout_s": 60})
    assert (await gateway.generate()).counts == (4, 1)


async def test_two_choices_are_complete_with_two_reasons_and_summed_usage(gateway: Gateway, worker: FakeWorker) -> None:
    def one(index: int, count: int, reason: str | None = None) -> dict[str, object]:
        content = {} if reason else {"content": "x"}
        return {**scripts.delta(MODEL, index, reason, **content), "usage": scripts.usage(9, count)}

    worker.scripts[MODEL] = scripts.stream(one(0, 1), one(1, 1), one(0, 2, "stop"), one(1, 5, "length"))
    await gateway.register(worker.url)
    answer = await gateway.generate(choices=2)
    assert answer.counts == (9, 7)
    assert answer.end is not None
    assert json.loads(answer.end.usage_frame)["usage"] == scripts.usage(9, 7)
    alone = await gateway.generate(choices=3)
    assert alone.failure is not None
    assert alone.failure.reason == frame_pb2.FAILURE_REASON_UPSTREAM


async def test_a_connection_is_used_again(gateway: Gateway, worker: FakeWorker) -> None:
    await gateway.register(worker.url)
    made = worker.connections_made
    for _ in range(5):
        assert (await gateway.generate()).counts == (12, 5)
        await gateway.until_free()
    assert worker.connections_made <= made + 1


async def test_many_streams_at_once_are_not_mixed(gateway: Gateway, worker: FakeWorker) -> None:
    import asyncio

    await gateway.register(worker.url)
    answers = await asyncio.gather(*(gateway.generate() for _ in range(40)))
    assert {answer.text for answer in answers} == {"Hello, world! Bye."}
    await gateway.until_free()
    assert gateway.worker().in_flight == 0
