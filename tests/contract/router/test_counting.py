"""CountTokens over real gRPC against a scripted worker: what it is asked, and that nothing but a count comes of it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from speedinfer.common.v1 import context_pb2
from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION, OPERATION_UNSPECIFIED
from speedinfer.router.v1 import inference_pb2 as pb
from speedinfer.router.v1 import registry_pb2
from speedinfer.router.v1.fleet_pb2 import FEATURE_CHOICES, WORKER_STATUS_HEALTHY

from services.common import ids
from services.router.transport import openai_http
from tests.contract.router.gateway import ADMIN, MODEL, Gateway, registration, running
from tests.fakes import scripts
from tests.fakes.scripts import Close, Hang, Reset, WaitFor
from tests.fakes.worker import FakeWorker

MEMBERS = (("messages", b'[{"role": "user", "content": "Hi"}]'), ("temperature", b"0.5"))
COUNTING = {"count_tokens": "vllm"}


async def count(
    gateway: Gateway, members: Sequence[tuple[str, bytes]] = MEMBERS, remaining_ms: int = 5_000, **fields: Any
) -> pb.CountTokensResponse:
    request = pb.CountTokensRequest(
        context=context_pb2.RequestContext(request_id=ids.uuid7(), remaining_ms=remaining_ms),
        operation=fields.pop("operation", OPERATION_CHAT_COMPLETION),
        model=fields.pop("model", MODEL),
        members=[pb.Member(name=name, json=value) for name, value in members],
        **fields,
    )
    return await gateway.inference.CountTokens(request)


def asked(worker: FakeWorker) -> int:
    return sum(request.path == "/tokenize" for request in worker.requests)


async def test_a_worker_counts_and_nothing_of_it_changes(gateway: Gateway, worker: FakeWorker) -> None:
    worker.counted = 7
    await gateway.register(worker.url, config={**COUNTING, "api_key": "sk-of-the-worker", "max_concurrency": 1})
    # Full, but a count takes no place.
    slot = gateway.worker().take(asyncio.get_running_loop().time())
    answer = await count(gateway)
    slot.release()
    assert (answer.prompt_tokens, answer.worker_id) == (7, "w1")
    [request] = [each for each in worker.requests if each.path == "/tokenize"]
    assert request.json == {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
    assert request.headers["authorization"] == "Bearer sk-of-the-worker"
    [shown] = (await gateway.fleet()).workers
    assert shown.counts_tokens


async def test_the_messages_api_and_a_path_of_its_own(gateway: Gateway, worker: FakeWorker) -> None:
    worker.paths["/prefix/count"] = [scripts.json_answer({"input_tokens": 9})]
    await gateway.register(worker.url, config={"count_tokens": "anthropic", "count_tokens_path": "/prefix/count"})
    assert (await count(gateway)).prompt_tokens == 9


async def test_who_cannot_be_asked_is_not(
    gateway: Gateway, worker: FakeWorker, second: FakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_http, "MAX_COUNTED_BYTES", 100)
    worker.counted = second.counted = 7
    await gateway.register(second.url, "plain")
    assert (await count(gateway)).no_count == pb.NO_COUNT_UNABLE
    await gateway.register(worker.url, config=COUNTING)
    assert (await count(gateway, preferred_worker_id="plain")).worker_id == "w1"
    assert (await count(gateway, model="acme/unheard-of")).no_count == pb.NO_COUNT_UNABLE
    assert (await count(gateway, members=[*MEMBERS, ("documents", b"[]")])).no_count == pb.NO_COUNT_UNABLE
    long = ("messages", b'[{"role": "user", "content": "%s"}]' % (b"x" * 100))
    assert (await count(gateway, members=[long])).no_count == pb.NO_COUNT_UNABLE
    await gateway.register(worker.url, config=COUNTING, runtime="llama.cpp")
    needs = [pb.Requirement(feature=FEATURE_CHOICES, param="n")]
    assert (await count(gateway, requirements=needs)).no_count == pb.NO_COUNT_UNABLE
    assert asked(second) == 0
    assert asked(worker) == 1
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await count(gateway, operation=OPERATION_UNSPECIFIED)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "script",
    [
        [scripts.json_answer({"count": -5})],
        [scripts.json_answer({"count": 2**31})],
        [scripts.json_answer({"count": 7.0})],
        [scripts.json_answer({"count": "7"})],
        [scripts.json_answer({})],
        [scripts.answer(200, b"seven", "text/plain")],
        [scripts.json_answer({"count": 7}, 500)],
        [scripts.json_answer({"detail": "Not Found"}, 404)],
        [scripts.answer(302, b"", Location="http://127.0.0.1:1/")],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"],
        [Reset()],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", Close()],
    ],
    ids=lambda script: repr(script[0])[:60],
)
async def test_nonsense_is_no_count_and_not_held_against_the_worker(
    gateway: Gateway, worker: FakeWorker, script: Any
) -> None:
    await gateway.register(worker.url, config=COUNTING)
    worker.paths["/tokenize"] = script
    for _ in range(6):
        answer = await count(gateway)
        assert (answer.no_count, answer.worker_id) == (pb.NO_COUNT_FAILED, "w1")
    assert (await gateway.generate()).end is not None


async def test_a_worker_that_hangs_is_waited_for_only_so_long_and_dropped(gateway: Gateway, worker: FakeWorker) -> None:
    await gateway.register(worker.url, config=COUNTING)
    worker.paths["/tokenize"] = [Hang()]
    assert (await count(gateway, remaining_ms=50)).no_count == pb.NO_COUNT_FAILED
    await asyncio.wait_for((await worker.received(1)).disconnected.wait(), 10)


async def test_a_worker_is_asked_few_things_at_once(tmp_path: Path, worker: FakeWorker) -> None:
    async with running(tmp_path, drain_s=2.0, max_counts_per_worker=2) as gateway:
        await gateway.register(worker.url, config=COUNTING)
        go = asyncio.Event()
        worker.paths["/tokenize"] = [WaitFor(go), scripts.json_answer({"count": 7})]
        asking = [asyncio.create_task(count(gateway)) for _ in range(2)]
        await worker.received(2)
        assert (await count(gateway)).no_count == pb.NO_COUNT_BUSY
        go.set()
        assert [answer.prompt_tokens for answer in await asyncio.gather(*asking)] == [7, 7]
        assert (await count(gateway)).prompt_tokens == 7


async def test_one_that_counted_short_is_not_asked_again_until_it_is_registered_anew(
    gateway: Gateway, worker: FakeWorker
) -> None:
    worker.counted = 7
    await gateway.register(worker.url, config=COUNTING)
    # The worker reports 12 prompt tokens of it.
    exact = await gateway.generate(counted_prompt_tokens=12, counted_by="w1")
    assert exact.counts[0] == 12
    assert (await count(gateway)).prompt_tokens == 7
    assert (await gateway.generate(counted_prompt_tokens=11, counted_by="w1")).end is not None
    assert (await count(gateway)).no_count == pb.NO_COUNT_UNABLE
    [shown] = (await gateway.fleet()).workers
    assert not shown.counts_tokens
    await gateway.register(worker.url, config=COUNTING)
    assert (await count(gateway)).prompt_tokens == 7


async def test_a_place_may_be_used_under_another_id(gateway: Gateway, worker: FakeWorker) -> None:
    await gateway.register(worker.url, config={"max_concurrency": 1})
    asked_for = ids.uuid7()
    call = gateway.inference.HoldPlace(
        pb.HoldPlaceRequest(context=context_pb2.RequestContext(request_id=asked_for), model=MODEL, party="p")
    )
    assert (await anext(aiter(call))).place.worker_id == "w1"
    go = asyncio.Event()
    worker.scripts[MODEL] = [WaitFor(go), *scripts.chat_stream(MODEL, ["Hi"], scripts.usage(1, 1))]
    generating = asyncio.create_task(gateway.generate(place_worker_id="w1", place_request_id=asked_for))
    await worker.received(1)
    # It runs in that place, and not beside it.
    assert gateway.worker().in_flight == 1
    go.set()
    assert (await generating).counts == (1, 1)
    call.cancel()
    await gateway.until_free()


CHECKED = {**COUNTING, "check": "token"}


async def test_a_check_asks_for_a_count_and_compares_it_with_what_is_reported(
    gateway: Gateway, worker: FakeWorker
) -> None:
    # Of the check's prompt 12 tokens are reported.
    worker.counted = 12
    detail = await gateway.register(worker.url, config=CHECKED)
    assert (detail.worker.status, list(detail.warnings)) == (WORKER_STATUS_HEALTHY, [])
    assert detail.worker.counts_tokens
    assert asked(worker) > 0


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ([scripts.json_answer({"count": 11})], "11 tokens are counted where 12 are reported"),
        ([scripts.json_answer({"detail": "Not Found"}, 404)], "the worker does not count (status 404 for a count)"),
        ([Hang()], "the worker does not count (no answer in time)"),
    ],
    ids=["short", "no route", "silent"],
)
async def test_a_worker_that_does_not_count_what_it_reports_serves_and_is_not_asked(
    gateway: Gateway, worker: FakeWorker, monkeypatch: pytest.MonkeyPatch, script: Any, why: str
) -> None:
    monkeypatch.setattr(openai_http, "COUNT_CHECK_S", 0.05)
    worker.paths["/tokenize"] = script
    detail = await gateway.register(worker.url, config=CHECKED)
    assert detail.worker.status == WORKER_STATUS_HEALTHY
    assert list(detail.warnings) == [f"count_tokens: not used, since {why}"]
    before = asked(worker)
    assert not detail.worker.counts_tokens
    assert (await count(gateway)).no_count == pb.NO_COUNT_UNABLE
    assert asked(worker) == before
    assert (await gateway.generate()).end is not None


async def test_the_thorough_check_counts_tools_too(gateway: Gateway, worker: FakeWorker) -> None:
    worker.paths["/tokenize"] = lambda request: [
        scripts.json_answer({"count": 5 if "tools" in request.json else 12}),
    ]
    request = registry_pb2.CheckWorkerRequest(registration=registration(worker.url, config=CHECKED))
    found = (await gateway.registry.CheckWorker(request, metadata=ADMIN)).findings
    assert "count: 12 tokens where 12 are reported" in found
    assert "count with tools: SHORT, 5 tokens where 12 are reported: set count_tokens to none" in found
