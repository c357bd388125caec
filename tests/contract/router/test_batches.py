"""What the caller gets at once, and how long it is waited for."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from speedinfer.router.v1 import frame_pb2

from services.common.settings import RouterLimits
from services.common.tasks import TaskSet
from services.router.reading import Reading
from services.router.transport.openai_config import OpenAiConfig
from services.router.transport.openai_http import OpenAiTransport
from services.router.transport.port import Activity, Event
from tests.contract.router.gateway import Gateway, item
from tests.fakes.worker import FakeWorker
from tests.harness.router_worker import worker_of


def kinds(frames: list[frame_pb2.Frame]) -> list[str | None]:
    """What frames they are."""
    return [frame.WhichOneof("frame") for frame in frames]


async def test_a_whole_answer_comes_in_one_batch(gateway: Gateway, worker: FakeWorker) -> None:
    await gateway.register(worker.url)
    request = gateway.router.dispatcher.start(item(stream=False))
    try:
        assert kinds(await request.next_frames()) == ["accepted", "data", "end"]
        assert await request.next_frames() == []
    finally:
        request.leave()


@pytest.mark.parametrize(("first_s", "then_s"), [(0.01, 0.04), (3600.0, 0.02)])
async def test_each_wait_ends_at_its_own_time(first_s: float, then_s: float) -> None:
    transport = OpenAiTransport(
        "http://127.0.0.1:9", OpenAiConfig.model_validate({"transport": "openai"}), ["m"], "vllm", RouterLimits()
    )
    more = asyncio.Event()

    async def answer() -> AsyncIterator[Event]:
        yield Activity()
        await more.wait()

    loop, tasks = asyncio.get_running_loop(), TaskSet()
    reading = Reading(answer(), worker_of(transport).take(0.0), tasks)
    # One timer serves both waits: the first leaves it where the second has to be longer, or shorter.
    assert await reading.wait(loop.time() + first_s)
    reading.take()
    until = loop.time() + then_s
    async with asyncio.timeout(5):
        assert not await reading.wait(until)
    # The loop's clock counts in milliseconds.
    assert loop.time() >= until - 0.002
    reading.leave()
    await tasks.cancel()
    await transport.close()
