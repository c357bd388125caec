"""An answer that nobody waits for: dropped, or first left a moment to end by itself."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from speedinfer.common.v1.operation_pb2 import OPERATION_COMPLETION

from services.common.settings import RouterLimits
from services.common.tasks import TaskSet
from services.router.reading import Reading
from services.router.safe_text import SafeText
from services.router.transport.port import Activity, Dispatch, Event, WorkerFailure
from services.router.transport.triton import TritonTransport
from services.router.transport.triton_config import TritonConfig
from services.router.transport.triton_grpc import TritonGrpc
from services.router.transport.triton_http import TritonHttp
from services.router.transport.triton_model import Tensor, TensorPlan
from tests.fakes.triton_grpc import FakeTritonGrpc
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


@pytest.mark.parametrize("error", ["the engine failed", ""])
async def test_a_stream_that_failed_is_left_to_end_by_itself(error: str) -> None:
    text = Tensor("text_input", "BYTES", (1,), batched=True)
    plan = TensorPlan("m", "", True, text, {}, (), "text_output", "", "", True, cumulative_text=False, adds_bos=False)
    dispatch = Dispatch("r", 1, OPERATION_COMPLETION, "m", True, (), None)
    async with FakeTritonGrpc() as server:
        server.error = error
        client = TritonGrpc(
            f"127.0.0.1:{server.port}", secure=False, headers=(), connect_timeout_s=30, max_answer_bytes=1024
        )
        with pytest.raises(WorkerFailure):
            async for _ in client.stream(plan, (), dispatch):
                pass
        # A cancel would come before this, on the same connection.
        assert await client.answers(30) == ""
        assert server.ends == []
        server.go.set()
        await until_async(lambda: bool(server.ends), "the stream has ended")
        await client.close()
    assert server.ends == ["by itself"]


async def test_a_transport_that_is_closed_at_once_lets_go_of_what_it_sees_off() -> None:
    async def never_ends(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"data: {}")
        await asyncio.get_running_loop().create_future()
        return response

    app = web.Application()
    app.router.add_get("/", never_ends)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        client = TritonHttp(str(server.make_url("")), headers=(), connect_timeout_s=30, max_answer_bytes=1024)
        response = await session.get(server.make_url("/"))
        client.see_off(response)
        # The task has not begun.
        await client.close()
        assert response.closed


async def test_what_a_server_repeats_of_a_registrations_secrets_is_not_told() -> None:
    async with FakeTritonGrpc() as server:
        server.tells = True
        client = TritonGrpc(
            f"127.0.0.1:{server.port}",
            secure=False,
            headers=(("authorization", "Bearer hush-hush"),),
            connect_timeout_s=30,
            max_answer_bytes=1024,
            safe=SafeText(["Bearer hush-hush"]),
        )
        told = await client.answers(30)
        await client.close()
    assert told.startswith("PERMISSION_DENIED: bad credentials")
    assert "hush" not in told
