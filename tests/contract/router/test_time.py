"""Deadlines, kept connections and second attempts at their edges, through a real router to scripted workers."""

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from speedinfer.router.v1 import frame_pb2, inference_pb2

from tests.contract.router.gateway import MODEL, Answer, Gateway, item, running
from tests.contract.router.test_places import Hold, until_waiting
from tests.fakes import scripts
from tests.fakes.scripts import Close, Hang, Pause, Received, Reset, Step, WaitFor
from tests.fakes.worker import FakeWorker

HELLO = scripts.delta(MODEL, content="Hello")
ROLE = scripts.delta(MODEL, role="assistant", content="")
GOOD = scripts.chat_stream(MODEL, ["Hi"], scripts.usage(4, 1))
TOO_LONG = scripts.json_answer({"error": {"message": "maximum context length is 100 tokens"}}, 400)


def failed(answer: Answer) -> frame_pb2.Failure:
    """The failure of an answer that has one."""
    assert answer.failure is not None, answer.kinds
    return answer.failure


def in_turn(*turns: list[Step]) -> scripts.Script:
    """Each request plays the next part; the last part stays."""
    left: Iterator[list[Step]] = itertools.chain(turns[:-1], itertools.repeat(turns[-1]))

    def script(_request: Received) -> Iterable[Step]:
        return next(left)

    return script


@pytest.mark.parametrize("what", [scripts.chunk(b": wait\n\n"), scripts.event(ROLE), scripts.chunk(b"\n")], ids=str)
async def test_what_is_no_token_never_keeps_the_first_token_deadline_off(
    gateway: Gateway, worker: FakeWorker, what: bytes
) -> None:
    # Without a pause: something is ready whenever the router looks.
    worker.scripts[MODEL] = lambda _: itertools.chain([scripts.SSE_HEAD], itertools.repeat(what, 1_000_000))
    await gateway.register(worker.url, config={"first_token_timeout_s": 0.1, "total_timeout_s": 20})
    assert failed(await gateway.generate()).deadline == "first token"


async def two(gateway: Gateway, first: FakeWorker, second: FakeWorker, **second_config: Any) -> Answer:
    """A request that the first worker is given, and then the second."""
    await gateway.register(first.url, "a", config={"first_token_timeout_s": 0.2, "total_timeout_s": 0.4})
    await gateway.register(second.url, "b", config=second_config)
    busy = gateway.worker("b").take(0.0)
    answer = await gateway.generate()
    busy.release()
    return answer


async def test_a_second_attempt_has_what_is_left_of_the_total_deadline(
    gateway: Gateway, worker: FakeWorker, second: FakeWorker
) -> None:
    worker.scripts[MODEL] = [Hang()]
    second.scripts[MODEL] = [Pause(0.3), *GOOD]
    failure = failed(await two(gateway, worker, second, total_timeout_s=0.4))
    assert (failure.deadline, failure.attempts) == ("total", 2)
    assert "0.4 s" in failure.message


async def test_there_is_no_second_attempt_after_the_deadline(
    gateway: Gateway, worker: FakeWorker, second: FakeWorker
) -> None:
    worker.scripts[MODEL] = [Hang()]
    failure = failed(await two(gateway, worker, second, total_timeout_s=0.1))
    assert (failure.deadline, failure.attempts) == ("first token", 1)
    assert second.requests == []


@pytest.mark.parametrize(
    ("steps", "dispatches"),
    [
        ([Close()], 2),
        ([Reset()], 2),
        ([b"H", Close()], 1),
        ([b"HTTP/1.1 200 OK\r\nContent-Ty", Close()], 1),
        ([b"HTTP/1.1 200 OK\r\nContent-Ty", Reset()], 1),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", Close()], 1),
        ([scripts.SSE_HEAD, Close()], 1),
    ],
    ids=str,
)
async def test_a_kept_connection_is_stale_only_without_a_byte_of_an_answer(
    gateway: Gateway, worker: FakeWorker, steps: list[Step], dispatches: int
) -> None:
    await gateway.register(worker.url)
    assert (await gateway.generate()).counts == (12, 5)
    worker.requests.clear()
    worker.scripts[MODEL] = in_turn(steps, GOOD)
    answer = await gateway.generate()
    assert (answer.end is not None) is (dispatches == 2)
    assert len(worker.requests) == dispatches


async def test_a_worker_that_closes_after_each_answer_loses_no_request(gateway: Gateway, worker: FakeWorker) -> None:
    worker.scripts[MODEL] = [*GOOD, Close()]
    await gateway.register(worker.url)
    for _ in range(30):
        answer = await gateway.generate()
        assert answer.counts == (4, 1)
    assert len(worker.requests) == 30
    assert gateway.worker().circuit(0.0) == "closed"


async def kinds_of(call: Any) -> list[str | None]:
    return [response.frame.WhichOneof("frame") async for response in call]


@pytest.mark.parametrize(("first", "again"), [([Close()], GOOD), ([TOO_LONG], GOOD)], ids=["stale", "bound"])
async def test_once_more_is_in_the_same_place_however_many_wait(
    tmp_path: Path, worker: FakeWorker, first: list[Step], again: list[Step]
) -> None:
    async with running(tmp_path) as gateway:
        await gateway.register(worker.url, config={"max_concurrency": 1})
        await gateway.generate()
        worker.requests.clear()
        go = asyncio.Event()
        worker.scripts[MODEL] = in_turn(first, [WaitFor(go), *again])
        mine = Hold(gateway)
        await mine.worker_id()
        waits = Hold(gateway, "other")
        await until_waiting(gateway, 1)
        request = item(output_limit_is_ours=True)
        request.context.request_id = mine.request_id
        call = gateway.inference.Generate(inference_pb2.GenerateRequest(item=request))
        reading = asyncio.ensure_future(kinds_of(call))
        await worker.received(2)
        assert (gateway.worker().in_flight, gateway.router.dispatcher.places.waiting) == (1, 1)
        go.set()
        assert (await reading)[-1] == "end"
        assert await waits.worker_id() == "w1"
        assert gateway.worker().in_flight == 1
        await waits.end()
        await gateway.until_free()


async def test_a_second_attempt_takes_a_free_place_or_none(
    tmp_path: Path, worker: FakeWorker, second: FakeWorker
) -> None:
    async with running(tmp_path) as gateway:
        await gateway.register(second.url, "full", config={"max_concurrency": 1})
        full = Hold(gateway)
        assert await full.worker_id() == "full"
        worker.scripts[MODEL] = [scripts.json_answer({}, 500)]
        await gateway.register(worker.url, "bad", config={"max_concurrency": 1})
        failure = failed(await gateway.generate())
        # The first worker's own failure, and not that there was no place for a second attempt.
        assert (failure.reason, failure.attempts) == (frame_pb2.FAILURE_REASON_UPSTREAM, 1)
        assert second.requests == []
        await full.end()
        await gateway.until_free("full")


async def test_a_place_on_a_worker_whose_circuit_opened_is_not_used(
    tmp_path: Path, worker: FakeWorker, second: FakeWorker
) -> None:
    async with running(tmp_path, failures_to_open_circuit=1, circuit_open_s=60) as gateway:
        await gateway.register(worker.url, "bad", config={"max_concurrency": 2})
        hold = Hold(gateway)
        await hold.worker_id()
        worker.scripts[MODEL] = [scripts.json_answer({}, 500)]
        await gateway.generate()
        await gateway.register(second.url, "good", config={"max_concurrency": 2})
        worker.requests.clear()
        request = item()
        request.context.request_id = hold.request_id
        call = gateway.inference.Generate(inference_pb2.GenerateRequest(item=request))
        frames = [response.frame async for response in call]
        assert frames[0].accepted.worker_id == "good"
        assert worker.requests == []
        await gateway.until_free("bad")


async def test_a_deadline_that_ends_in_the_queue_is_the_total_one(tmp_path: Path, worker: FakeWorker) -> None:
    async with running(tmp_path, queue_wait_s=60) as gateway:
        await gateway.register(worker.url, config={"max_concurrency": 1})
        first = Hold(gateway)
        await first.worker_id()
        request = inference_pb2.HoldPlaceRequest(model=MODEL, party="a")
        request.context.request_id, request.context.remaining_ms = "r-late", 50
        answer = await gateway.inference.HoldPlace(request).read()
        assert answer.failure.reason == frame_pb2.FAILURE_REASON_TIMEOUT
        assert answer.failure.deadline == "total"
        assert gateway.router.dispatcher.places.waiting == 0
        await first.end()
        await gateway.until_free()


async def test_a_half_open_circuit_lets_no_second_one_in_because_an_older_request_ends(
    tmp_path: Path, worker: FakeWorker
) -> None:
    async with running(tmp_path, failures_to_open_circuit=1, circuit_open_s=0.05) as gateway:
        await gateway.register(worker.url)
        worker.scripts[MODEL] = in_turn([Hang()], [scripts.json_answer({}, 500)], [Hang()])
        older = gateway.inference.Generate(inference_pb2.GenerateRequest(item=item()))
        reading = asyncio.ensure_future(older.read())
        await worker.received(1)
        failed(await gateway.generate())
        await until_half_open(gateway)
        probe = gateway.inference.Generate(inference_pb2.GenerateRequest(item=item()))
        probing = asyncio.ensure_future(probe.read())
        await worker.received(3)
        older.cancel()
        await worker.requests[0].disconnected.wait()
        while gateway.worker().in_flight != 1:
            await gateway.worker().load.changed()
        assert failed(await gateway.generate(remaining_ms=5000)).reason == frame_pb2.FAILURE_REASON_NO_WORKER
        assert len(worker.requests) == 3
        probe.cancel()
        await asyncio.gather(reading, probing, return_exceptions=True)
        await gateway.until_free()


async def until_half_open(gateway: Gateway) -> None:
    watch = gateway.inference.WatchFleet(inference_pb2.WatchFleetRequest())
    try:
        async with asyncio.timeout(5):
            async for response in watch:
                if response.fleet.workers[0].circuit == "half_open":
                    return
    finally:
        watch.cancel()


async def test_a_storm_of_failures_is_not_doubled(tmp_path: Path, worker: FakeWorker, second: FakeWorker) -> None:
    async with running(tmp_path, failures_to_open_circuit=10_000, retry_burst=1) as gateway:
        worker.scripts[MODEL] = second.scripts[MODEL] = [scripts.json_answer({}, 500)]
        await gateway.register(worker.url, "a")
        await gateway.register(second.url, "b")
        for _ in range(30):
            failed(await gateway.generate())
        # A fifth of thirty, and the one after quiet times.
        assert 33 <= len(worker.requests) + len(second.requests) <= 37
