"""A router in the test's process, spoken to over real gRPC, and short ways to say what tests say often."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import grpc
from google.protobuf import json_format
from pydantic import SecretStr
from speedinfer.common.v1 import context_pb2
from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION
from speedinfer.router.v1 import (
    fleet_pb2,
    frame_pb2,
    inference_pb2,
    inference_pb2_grpc,
    registry_pb2,
    registry_pb2_grpc,
)

from services.common import ids, rpc
from services.common.settings import RouterLimits, RouterSettings, Settings
from services.router.app import Router

TOKEN = "sat-of-a-test"
ADMIN = (("authorization", f"Bearer {TOKEN}"),)
MODEL = "acme/model-1"


@dataclass
class Answer:
    """The frames of one request, by kind."""

    accepted: list[frame_pb2.Accepted] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    usages: list[frame_pb2.UsageSoFar] = field(default_factory=list)
    end: frame_pb2.End | None = None
    failure: frame_pb2.Failure | None = None
    kinds: list[str] = field(default_factory=list)

    def add(self, frame: frame_pb2.Frame) -> None:
        """Note one frame."""
        kind = frame.WhichOneof("frame")
        assert kind is not None
        self.kinds.append(kind)
        if kind == "accepted":
            self.accepted.append(frame.accepted)
        elif kind == "data":
            self.payloads += frame.data.payloads
        elif kind == "usage":
            self.usages.append(frame.usage)
        elif kind == "end":
            self.end = frame.end
        else:
            self.failure = frame.failure

    @property
    def text(self) -> str:
        """What a client would have read of the first choice."""
        choices = [json.loads(payload)["choices"] for payload in self.payloads]
        return "".join(each[0]["delta"].get("content") or "" for each in choices if each and "delta" in each[0])

    @property
    def counts(self) -> tuple[int, int]:
        """Prompt and completion tokens at the end."""
        assert self.end is not None, f"no end: {self.failure}"
        return self.end.usage.prompt_tokens, self.end.usage.completion_tokens


@dataclass
class Gateway:
    """A running router and its stubs."""

    router: Router
    inference: inference_pb2_grpc.InferenceServiceStub
    registry: registry_pb2_grpc.WorkerRegistryServiceStub
    channel: grpc.aio.Channel
    # Where it listens.
    target: str

    async def register(self, url: str, worker_id: str = "w1", **changes: Any) -> registry_pb2.WorkerDetail:
        """Register a worker of MODEL."""
        answer = await self.registry.RegisterWorker(registration(url, worker_id, **changes), metadata=ADMIN)
        return answer.worker

    async def remove(self, worker_id: str = "w1") -> None:
        """Forget a worker."""
        await self.registry.RemoveWorker(registry_pb2.RemoveWorkerRequest(worker_id=worker_id), metadata=ADMIN)

    async def generate(self, **changes: Any) -> Answer:
        """Run one request to its end."""
        answer = Answer()
        async for response in self.inference.Generate(inference_pb2.GenerateRequest(item=item(**changes))):
            answer.add(response.frame)
        return answer

    def worker(self, worker_id: str = "w1") -> Any:
        """The router's own record of a worker."""
        return self.router.registrar.get(worker_id)

    async def fleet(self) -> fleet_pb2.Fleet:
        """The picture now."""
        return (await self.inference.GetFleet(inference_pb2.GetFleetRequest())).fleet

    async def until(self, status: fleet_pb2.WorkerStatus.ValueType, worker_id: str = "w1") -> fleet_pb2.Worker:
        """Watch the fleet until a worker has a status."""
        call = self.inference.WatchFleet(inference_pb2.WatchFleetRequest())
        try:
            async for response in call:
                for worker in response.fleet.workers:
                    if worker.worker_id == worker_id and worker.status == status:
                        return worker
        finally:
            call.cancel()
        raise AssertionError("the watch ended before")

    async def until_free(self, worker_id: str = "w1") -> None:
        """Wait until nothing runs on a worker."""
        worker = self.worker(worker_id)
        async with asyncio.timeout(5.0):
            while worker.in_flight:
                await worker.load.changed()


def registration(url: str, worker_id: str = "w1", **changes: Any) -> registry_pb2.RegisterWorkerRequest:
    """A registration; `config` adds to its runtime_config."""
    config = {"transport": "openai", "check": "metadata", **changes.pop("config", {})}
    document = {
        "worker_id": worker_id,
        "worker_type": "cpu",
        "runtime": "openai-compatible",
        "runtime_endpoint": url,
        "supported_models": [MODEL],
        "runtime_config": config,
        **changes,
    }
    return json_format.ParseDict(document, registry_pb2.RegisterWorkerRequest())


def item(
    *,
    model: str = MODEL,
    stream: bool = True,
    members: Sequence[tuple[str, bytes]] = (("messages", b'[{"role": "user", "content": "Hi"}]'),),
    output_limit: int | None = 16,
    operation: Any = OPERATION_CHAT_COMPLETION,
    remaining_ms: int = 0,
    **fields: Any,
) -> inference_pb2.GenerateItem:
    """A request as the edge makes it."""
    fields.setdefault("choices", 1)
    return inference_pb2.GenerateItem(
        context=context_pb2.RequestContext(request_id=ids.uuid7(), attempt=1, remaining_ms=remaining_ms),
        model=model,
        operation=operation,
        stream=stream,
        members=[inference_pb2.Member(name=name, json=value) for name, value in members],
        output_limit=output_limit,
        **fields,
    )


@contextlib.asynccontextmanager
async def running(
    data_dir: Path,
    workers: Sequence[dict[str, Any]] = (),
    networks: Any = None,
    database: str = "",
    *,
    discover: Sequence[dict[str, Any]] = (),
    **limits: Any,
) -> AsyncIterator[Gateway]:
    """A router with its own data directory, drained at the end; `networks` are those that are allowed, `database` the registry
    that it shares."""
    settings = Settings(
        data_dir=data_dir,
        admin_token=SecretStr(TOKEN),
        router=RouterSettings(
            listen="127.0.0.1:0",
            allowed_networks=networks,
            database=SecretStr(database),
            limits=RouterLimits(**limits),
        ),
        workers=list(workers),
        discover=list(discover),
    )
    router = Router(settings, chance=Random(7))
    port = await router.start()
    channel: grpc.aio.Channel = rpc.channel(f"127.0.0.1:{port}")
    try:
        # The core shares connections by address: of an earlier test's router on the same port a failure may be remembered.
        assert await rpc.connected(channel, 10)
        yield Gateway(
            router,
            inference_pb2_grpc.InferenceServiceStub(channel),
            registry_pb2_grpc.WorkerRegistryServiceStub(channel),
            channel,
            f"127.0.0.1:{port}",
        )
    finally:
        await channel.close()
        await router.drain()
