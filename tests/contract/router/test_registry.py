"""The registry over gRPC: registration, restart, replacement, drain, removal, and who may do it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from speedinfer.router.v1 import frame_pb2, inference_pb2, registry_pb2
from speedinfer.router.v1.fleet_pb2 import (
    FEATURE_CHAT,
    FEATURE_CHOICES,
    FEATURE_COMPLETION,
    FEATURE_EMBEDDING,
    WORKER_STATUS_DRAINING,
    WORKER_STATUS_HEALTHY,
    WORKER_STATUS_MISCONFIGURED,
    WORKER_STATUS_UNHEALTHY,
)

from services.common import rpc
from tests.contract.router.gateway import ADMIN, MODEL, Gateway, item, registration, running
from tests.fakes import scripts
from tests.fakes.worker import FakeWorker

HELLO = scripts.delta(MODEL, content="Hello")
REST = (
    scripts.delta(MODEL, finish_reason="stop"),
    scripts.frame(MODEL, choices=[], usage=scripts.usage(12, 1)),
)


class Stream:
    """A stream of which the first content has come."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self._responses = aiter(call)

    @classmethod
    async def begin(cls, gateway: Gateway) -> "Stream":
        stream = cls(gateway.inference.Generate(inference_pb2.GenerateRequest(item=item())))
        kinds = [(await anext(stream._responses)).frame.WhichOneof("frame") for _ in range(2)]
        assert kinds == ["accepted", "data"]
        return stream

    async def last(self) -> frame_pb2.Frame:
        """Read it to its end; the last frame."""
        return [response.frame async for response in self._responses][-1]


@pytest.mark.parametrize("style", ["openai", "trtllm"])
async def test_a_good_worker_is_healthy_and_generates(gateway: Gateway, style: Any) -> None:
    async with FakeWorker(style=style) as worker:
        detail = await gateway.register(worker.url, config={"check": "token"})
        assert detail.worker.status == WORKER_STATUS_HEALTHY
        assert detail.detail == ""
        assert {FEATURE_CHAT, FEATURE_COMPLETION, FEATURE_CHOICES} <= set(detail.worker.features)
        assert (FEATURE_EMBEDDING in detail.worker.features) == (style == "openai")
        assert worker.requests[0].json["max_tokens"] == 1
        assert (await gateway.generate()).counts == (12, 5)


async def test_without_the_token_nothing_is_done(gateway: Gateway, worker: FakeWorker) -> None:
    for metadata in ((), (("authorization", "Bearer wrong"),)):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await gateway.registry.RegisterWorker(registration(worker.url), metadata=metadata)
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.aio.AioRpcError):
            await gateway.registry.ListWorkers(registry_pb2.ListWorkersRequest(), metadata=metadata)
    assert len(gateway.router.registry) == 0
    # The inference service asks for none.
    assert (await gateway.fleet()).workers == []


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"config": {"colour": "red"}}, "runtime_config.colour is not known"),
        ({"config": {"transport": "smoke"}}, "runtime_config.transport must be 'openai' or 'triton'"),
        ({"config": {"idle_timeout_s": 0}}, "runtime_config.idle_timeout_s"),
        ({"config": {"headers": {"Host": "x"}}}, "runtime_config.headers: 'Host' cannot be set"),
        ({"config": {"headers": {"X-A": "a\r\nB: c"}}}, "runtime_config.headers"),
        ({"runtime": "abacus"}, "runtime:"),
        ({"runtime_metadata": {"a": float("nan")}}, "runtime_metadata: NaN and infinity are no JSON"),
        ({"worker_id": "a b"}, "worker_id:"),
        ({"supported_models": []}, "supported_models:"),
        ({"supported_models": ["m", "m"]}, "supported_models names a model twice"),
        ({"runtime_endpoint": "ftp://127.0.0.1/"}, "runtime_endpoint: it must begin with http"),
        ({"runtime_endpoint": "http://user:hush@127.0.0.1/"}, "runtime_endpoint: it holds credentials"),
        ({"runtime_endpoint": "http://169.254.169.254/"}, "runtime_endpoint: it is a metadata service"),
    ],
)
async def test_a_wrong_registration_is_refused_by_name(
    gateway: Gateway, worker: FakeWorker, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await gateway.registry.RegisterWorker(registration(worker.url, **changes), metadata=ADMIN)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert named in (refused.value.details() or "")
    assert "hush" not in (refused.value.details() or "")
    assert rpc.reason_of(refused.value)[1].startswith(named.split(":")[0].split(" ")[0])
    assert len(gateway.router.registry) == 0


async def test_what_is_wrong_with_a_worker_is_said_by_name(gateway: Gateway, worker: FakeWorker) -> None:
    worker.models = ["other/a", "other/b"]
    detail = await gateway.register(worker.url)
    assert detail.worker.status == WORKER_STATUS_MISCONFIGURED
    assert detail.detail == f"model {MODEL!r} is not listed by the worker; it lists other/a, other/b"
    assert detail.worker.last_probe.error == "misconfigured"


async def test_a_single_listed_model_is_the_one(gateway: Gateway, worker: FakeWorker) -> None:
    worker.models = ["TinyLlama"]
    await gateway.register(worker.url)
    assert (await gateway.generate()).counts == (12, 5)
    assert worker.requests[-1].model == "TinyLlama"


async def test_a_worker_without_usage_is_misconfigured(gateway: Gateway, worker: FakeWorker) -> None:
    worker.scripts[MODEL] = scripts.chat_stream(MODEL, ["Hi"], None)
    detail = await gateway.register(worker.url, config={"check": "token"})
    assert detail.worker.status == WORKER_STATUS_MISCONFIGURED
    assert "reports no usage" in detail.detail


async def test_the_credentials_are_checked(gateway: Gateway, worker: FakeWorker) -> None:
    worker.paths["/v1/models"] = [scripts.json_answer({"error": "no"}, 401)]
    detail = await gateway.register(worker.url)
    assert detail.worker.status == WORKER_STATUS_MISCONFIGURED
    assert "api_key" in detail.detail


async def test_a_server_of_embeddings_alone(gateway: Gateway, worker: FakeWorker) -> None:
    vectors = {
        "object": "list",
        "model": MODEL,
        "data": [{"index": 0, "embedding": [1.0]}],
        "usage": {"prompt_tokens": 1},
    }
    no = scripts.json_answer({"error": {"message": "this model does not support chats"}}, 400)
    worker.scripts[MODEL] = lambda request: [scripts.json_answer(vectors) if "input" in request.json else no]
    detail = await gateway.register(worker.url, config={"check": "token"})
    assert detail.worker.status == WORKER_STATUS_HEALTHY
    assert FEATURE_EMBEDDING in detail.worker.features
    assert FEATURE_CHAT not in detail.worker.features


async def test_llama_cpp_is_known_by_what_it_lists(gateway: Gateway) -> None:
    async with FakeWorker(owned_by="llamacpp") as worker:
        detail = await gateway.register(worker.url, config={"check": "token"})
        assert detail.worker.status == WORKER_STATUS_HEALTHY
        assert FEATURE_CHOICES not in detail.worker.features


async def test_an_endpoint_without_v1_means_the_same(gateway: Gateway, worker: FakeWorker) -> None:
    await gateway.register(worker.url.removesuffix("/v1"))
    assert (await gateway.generate()).counts == (12, 5)
    assert worker.requests[-1].path == "/v1/chat/completions"


async def test_secrets_are_not_shown_and_integers_stay_integers(gateway: Gateway, worker: FakeWorker) -> None:
    config = {"api_key": "hush", "headers": {"X-A": "hush"}, "max_concurrency": 3, "idle_timeout_s": 1.5}
    await gateway.register(worker.url, config=config, runtime_metadata={"rack": 7})
    answer = await gateway.registry.GetWorker(registry_pb2.GetWorkerRequest(worker_id="w1"), metadata=ADMIN)
    shown = answer.worker
    assert shown.runtime_config["api_key"] == "***"
    assert shown.runtime_config["headers"]["X-A"] == "***"
    assert "hush" not in str(shown)
    assert gateway.worker().max_concurrency == 3
    assert gateway.worker().registration.metadata == {"rack": 7}
    fleet = str(await gateway.fleet())
    assert "hush" not in fleet
    assert "127.0.0.1" not in fleet


async def test_a_check_stores_nothing(gateway: Gateway, worker: FakeWorker) -> None:
    request = registry_pb2.CheckWorkerRequest(registration=registration(worker.url, config={"check": "token"}))
    answer = await gateway.registry.CheckWorker(request, metadata=ADMIN)
    assert answer.worker.worker.status == WORKER_STATUS_HEALTHY
    assert any(MODEL in finding for finding in answer.findings)
    assert any(finding.startswith("template: adds") for finding in answer.findings)
    assert any(finding.startswith("template with tools: adds") for finding in answer.findings)
    assert len(gateway.router.registry) == 0


async def test_registrations_survive_a_restart(tmp_path: Path, worker: FakeWorker) -> None:
    async with running(tmp_path) as gateway:
        await gateway.register(worker.url)
        await gateway.register(worker.url, "drained")
        async for _ in gateway.registry.DrainWorker(
            registry_pb2.DrainWorkerRequest(worker_id="drained"), metadata=ADMIN
        ):
            pass
        created = (await gateway.fleet()).models[0].created_at.ToMilliseconds()
    path = tmp_path / "router" / "registry.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in path.parent.iterdir()] == ["registry.json"]
    async with running(tmp_path) as gateway:
        await gateway.until(WORKER_STATUS_HEALTHY)
        assert (await gateway.generate()).accepted[0].worker_id == "w1"
        assert (await gateway.fleet()).models[0].created_at.ToMilliseconds() == created
        await gateway.until(WORKER_STATUS_DRAINING, "drained")


async def test_the_settings_file_registers_and_replaces(tmp_path: Path, worker: FakeWorker, second: FakeWorker) -> None:
    async with running(tmp_path) as gateway:
        await gateway.register(second.url)
    document = {
        "worker_id": "w1", "runtime": "vllm", "runtime_endpoint": worker.url, "supported_models": [MODEL],
        "runtime_config": {"transport": "openai", "check": "metadata"},
    }  # fmt: skip
    async with running(tmp_path, [document]) as gateway:
        await gateway.until(WORKER_STATUS_HEALTHY)
        assert (await gateway.generate()).counts == (12, 5)
    assert (len(worker.requests), len(second.requests)) == (1, 0)
    stored = json.loads((tmp_path / "router" / "registry.json").read_text())
    assert stored["workers"][0]["registration"]["runtime"] == "vllm"


async def test_a_replaced_worker_ends_its_streams(gateway: Gateway, worker: FakeWorker, second: FakeWorker) -> None:
    go_on = asyncio.Event()
    worker.scripts[MODEL] = scripts.stream(HELLO, scripts.WaitFor(go_on), *REST)
    await gateway.register(worker.url)
    stream = await Stream.begin(gateway)
    await gateway.register(second.url)
    assert (await gateway.generate()).counts == (12, 5)
    assert len(second.requests) == 1
    # What runs on the old registration still counts for the id.
    assert (await gateway.fleet()).workers[0].in_flight == 1
    go_on.set()
    assert (await stream.last()).HasField("end")
    await gateway.until_free()


async def test_a_drain_tells_when_the_last_stream_ended(gateway: Gateway, worker: FakeWorker) -> None:
    go_on = asyncio.Event()
    worker.scripts[MODEL] = scripts.stream(HELLO, scripts.WaitFor(go_on), *REST)
    await gateway.register(worker.url)
    stream = await Stream.begin(gateway)
    drain = gateway.registry.DrainWorker(
        registry_pb2.DrainWorkerRequest(worker_id="w1", wait_ms=20_000), metadata=ADMIN
    )
    progress = aiter(drain)
    first = await anext(progress)
    assert (first.in_flight, first.drained) == (1, False)
    refused = await gateway.generate()
    assert refused.failure is not None
    assert (await gateway.fleet()).workers[0].status == WORKER_STATUS_DRAINING
    go_on.set()
    assert (await stream.last()).HasField("end")
    last = [answer async for answer in progress][-1]
    assert (last.in_flight, last.drained) == (0, True)


async def test_a_removed_worker_is_forgotten_but_ends_its_streams(gateway: Gateway, worker: FakeWorker) -> None:
    go_on = asyncio.Event()
    worker.scripts[MODEL] = scripts.stream(HELLO, scripts.WaitFor(go_on), *REST)
    await gateway.register(worker.url)
    stream = await Stream.begin(gateway)
    await gateway.registry.RemoveWorker(registry_pb2.RemoveWorkerRequest(worker_id="w1"), metadata=ADMIN)
    assert (await gateway.fleet()).models == []
    go_on.set()
    assert (await stream.last()).HasField("end")
    with pytest.raises(grpc.aio.AioRpcError) as missing:
        await gateway.registry.GetWorker(registry_pb2.GetWorkerRequest(worker_id="w1"), metadata=ADMIN)
    assert missing.value.code() == grpc.StatusCode.NOT_FOUND
    # A refusal that repeated all of it would be more than gRPC sends.
    with pytest.raises(grpc.aio.AioRpcError) as missing:
        await gateway.remove("w" * 9_000)
    assert missing.value.code() == grpc.StatusCode.NOT_FOUND


async def test_a_worker_that_is_down_is_picked_up_when_it_answers(tmp_path: Path, worker: FakeWorker) -> None:
    fast = {"probe_interval_s": 0.3, "probe_interval_down_s": 0.3}
    async with running(tmp_path, **fast) as gateway:
        await worker.stop()
        detail = await gateway.register(worker.url)
        assert detail.worker.status == WORKER_STATUS_UNHEALTHY
        assert detail.worker.last_probe.error == "connect"
        await worker.start()
        await gateway.until(WORKER_STATUS_HEALTHY)
        await worker.stop()
        await gateway.until(WORKER_STATUS_UNHEALTHY)
        worker.models = ["a", "b"]
        await worker.start()
        await gateway.until(WORKER_STATUS_MISCONFIGURED)
        worker.models = [MODEL]
        await gateway.until(WORKER_STATUS_HEALTHY)


async def test_a_router_that_drains_lets_streams_end(tmp_path: Path, worker: FakeWorker) -> None:
    go_on = asyncio.Event()
    worker.scripts[MODEL] = scripts.stream(HELLO, scripts.WaitFor(go_on), *REST)
    async with running(tmp_path, drain_s=20.0) as gateway:
        await gateway.register(worker.url)
        stream = await Stream.begin(gateway)
        drain = asyncio.ensure_future(gateway.router.drain())
        while not gateway.router.dispatcher.draining:
            await asyncio.sleep(0)
        refused = await gateway.generate()
        assert refused.failure is not None
        assert "shutting down" in refused.failure.message
        go_on.set()
        assert (await stream.last()).HasField("end")
        await drain


async def test_a_drain_that_takes_too_long_ends_streams_with_a_failure(tmp_path: Path, worker: FakeWorker) -> None:
    worker.scripts[MODEL] = scripts.stream(HELLO, scripts.Hang())
    async with running(tmp_path, drain_s=0.1) as gateway:
        await gateway.register(worker.url)
        stream = await Stream.begin(gateway)
        drain = asyncio.ensure_future(gateway.router.drain())
        assert (await stream.last()).failure.message == "the router is shutting down"
        await drain


async def test_watchers_see_changes_of_load_too(gateway: Gateway, worker: FakeWorker) -> None:
    worker.scripts[MODEL] = scripts.stream(HELLO, scripts.Hang())
    await gateway.register(worker.url)
    watch = gateway.inference.WatchFleet(inference_pb2.WatchFleetRequest())
    version = 0
    stream = await Stream.begin(gateway)
    async for response in watch:
        assert response.fleet.version > version
        version = response.fleet.version
        if response.fleet.workers[0].in_flight == 1:
            break
    stream.call.cancel()
    async for response in watch:
        if response.fleet.workers[0].in_flight == 0:
            break
    watch.cancel()
    assert version > 0
