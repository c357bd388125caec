"""An answer that nobody waits for: dropped, or first left a moment to end by itself."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.common.settings import RouterLimits
from services.common.tasks import TaskSet
from services.router.reading import Reading
from services.router.transport.port import Activity, Event
from services.router.transport.triton import TritonTransport
from services.router.transport.triton_config import TritonConfig
from tests.harness.router_worker import worker_of
from tests.harness.until import until_async

FOR_EVER = 3600.0


@pytest.mark.parametrize(
    ("end_wait_s", "ends_by_itself", "outcome"),
    [(FOR_EVER, True, "ended"), (0.001, False, "dropped"), (0.0, False, "dropped")],
)
async def test_a_departure(end_wait_s: float, ends_by_itself: bool, outcome: str) -> None:
    config = TritonConfig.model_validate({"transport": "triton", "model_name": "m"})
    transport = TritonTransport("http://127.0.0.1:8000", config, ["acme/model-1"], "triton", RouterLimits())
    worker, end, outcomes, tasks = worker_of(transport), asyncio.Event(), list[str](), TaskSet()

    async def answer() -> AsyncIterator[Event]:
        yield Activity()
        try:
            await end.wait()
            outcomes.append("ended")
        except asyncio.CancelledError:
            outcomes.append("dropped")
            raise

    reading = Reading(answer(), worker.take(0.0), tasks, end_wait_s=end_wait_s)
    assert await reading.wait(asyncio.get_running_loop().time() + 30)
    reading.take()
    reading.leave()
    # The worker still works on it.
    assert worker.in_flight == 1
    if ends_by_itself:
        end.set()
    await until_async(lambda: worker.in_flight == 0, "the place is free")
    assert outcomes == [outcome]
    await transport.close()
