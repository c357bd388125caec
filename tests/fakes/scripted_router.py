"""A router that answers by script, for tests of the edge's side of the protocol. The real router has tests of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from speedinfer.common.v1.usage_pb2 import Usage
from speedinfer.router.v1 import inference_pb2_grpc, registry_pb2, registry_pb2_grpc, relay_pb2_grpc
from speedinfer.router.v1.fleet_pb2 import Feature, Fleet, Model, Worker, WorkerStatus
from speedinfer.router.v1.frame_pb2 import Accepted, Data, End, Failure, FailureReason, Frame, UsageSoFar
from speedinfer.router.v1.inference_pb2 import (
    CountTokensRequest,
    CountTokensResponse,
    GenerateItem,
    GenerateRequest,
    GenerateResponse,
    GetFleetRequest,
    GetFleetResponse,
    WatchFleetRequest,
    WatchFleetResponse,
)

from services.common import rpc
from services.router.metrics import Metrics
from services.router.relay_servicer import RelayServicer

MODEL = "acme/model-1"
WORKER = "worker-1"
Script = Callable[[GenerateItem], AsyncIterator[Frame]]
ALL_FEATURES = [number for number in Feature.values() if number]


def accepted(worker_id: str = WORKER, attempt: int = 1, ignored: tuple[str, ...] = ()) -> Frame:
    return Frame(accepted=Accepted(worker_id=worker_id, attempt=attempt, transport="openai", ignored_fields=ignored))


def data(*payloads: bytes, content: bool = True) -> Frame:
    return Frame(data=Data(payloads=payloads, has_content=content))


def so_far(prompt: int | None, completion: int | None) -> Frame:
    return Frame(usage=UsageSoFar(usage=Usage(prompt_tokens=prompt, completion_tokens=completion)))


def end(prompt: int | None = 12, completion: int | None = 5, frame: bytes = b"") -> Frame:
    return Frame(end=End(usage=Usage(prompt_tokens=prompt, completion_tokens=completion), usage_frame=frame))


def failure(reason: FailureReason.ValueType, **fields: Any) -> Frame:
    return Frame(failure=Failure(reason=reason, **fields))


def worker(
    worker_id: str = WORKER,
    status: WorkerStatus.ValueType = WorkerStatus.WORKER_STATUS_HEALTHY,
    *,
    counts_tokens: bool = False,
) -> Worker:
    return Worker(
        worker_id=worker_id,
        worker_type="nvidia-gpu",
        runtime="tensorrt-llm",
        transport="openai",
        supported_models=[MODEL],
        status=status,
        circuit="closed",
        features=ALL_FEATURES,
        counts_tokens=counts_tokens,
    )


class Played:
    """A script as the router's own relay takes a request: frames when they are asked for."""

    def __init__(self, router: "ScriptedRouter", item: GenerateItem) -> None:
        self._router = router
        assert router.script is not None
        self._frames = router.script(item)
        self._reading: asyncio.Future[Frame] | None = None

    async def next_frames(self) -> list[Frame]:
        self._reading = asyncio.ensure_future(anext(self._frames))  # type: ignore[arg-type]
        try:
            return [await self._reading]
        except StopAsyncIteration:
            return []
        except asyncio.CancelledError:
            self._router.cancelled.set()
            raise

    def leave(self) -> None:
        if self._reading is not None and not self._reading.done():
            self._reading.cancel()


class Scripts:
    """The scripted router's side of a relay; the rest of it is the real router's."""

    def __init__(self, router: "ScriptedRouter") -> None:
        self._router = router

    def start(self, item: GenerateItem) -> Played:
        self._router.items.append(item)
        return Played(self._router, item)

    async def place(self, request: Any) -> Any:
        raise NotImplementedError("no script has places")

    def give_back(self, request_id: str) -> None:
        """There is nothing to give back."""


class ScriptedRouter(inference_pb2_grpc.InferenceServiceServicer, registry_pb2_grpc.WorkerRegistryServiceServicer):
    """Plays `script` for every request and remembers what it was asked."""

    def __init__(self, router_id: str = "router-1", *, relays: bool = True) -> None:
        """`relays`: whether it knows the relay, or only calls of their own."""
        self.router_id = router_id
        self.relays = relays
        self.metrics = Metrics()
        self.relay = RelayServicer(router_id, Scripts(self), self.metrics)
        self.script: Script | None = None
        self.items: list[GenerateItem] = []
        # What CountTokens answers, while `counts` is set; and what it was asked.
        self.count = CountTokensResponse(prompt_tokens=7, worker_id=WORKER)
        self.counts = asyncio.Event()
        self.counts.set()
        self.asked: list[CountTokensRequest] = []
        self.cancelled = asyncio.Event()
        self.workers = [worker()]
        self.version = 1
        self.registered: list[registry_pb2.RegisterWorkerRequest] = []
        self._moved = asyncio.Event()
        self._server: rpc.Server | None = None
        self.port = 0

    async def start(self, port: int = 0, host: str = "127.0.0.1") -> None:
        gate = rpc.AdminGate("token-of-tests", ["speedinfer.router.v1.WorkerRegistryService"])
        self._server = rpc.Server([rpc.ErrorStatuses(), gate])
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(self, self._server.grpc)
        registry_pb2_grpc.add_WorkerRegistryServiceServicer_to_server(self, self._server.grpc)
        if self.relays:
            relay_pb2_grpc.add_RelayServiceServicer_to_server(self.relay, self._server.grpc)
        self._server.offers("speedinfer.router.v1.InferenceService")
        self.port = await self._server.start(f"{host}:{port}")

    async def stop(self) -> None:
        assert self._server is not None
        self._moved.set()
        await self._server.drain(0)

    def fleet(self) -> Fleet:
        names = sorted({name for each in self.workers for name in each.supported_models})
        models = [
            Model(name=name, worker_ids=[each.worker_id for each in self.workers if name in each.supported_models])
            for name in names
        ]
        return Fleet(router_id=self.router_id, version=self.version, models=models, workers=self.workers)

    def change(self, workers: list[Worker], *, tell: bool) -> None:
        """Another fleet; `tell` sends it to the watchers."""
        self.workers = workers
        self.version += 1
        if tell:
            self._moved.set()

    async def Generate(
        self, request: GenerateRequest, _context: grpc.aio.ServicerContext
    ) -> AsyncIterator[GenerateResponse]:
        self.items.append(request.item)
        assert self.script is not None
        try:
            async for frame in self.script(request.item):
                yield GenerateResponse(frame=frame)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def CountTokens(self, request: CountTokensRequest, _context: grpc.aio.ServicerContext) -> CountTokensResponse:
        self.asked.append(request)
        await self.counts.wait()
        return self.count

    async def GetFleet(self, _request: GetFleetRequest, _context: grpc.aio.ServicerContext) -> GetFleetResponse:
        return GetFleetResponse(fleet=self.fleet())

    async def WatchFleet(
        self, _request: WatchFleetRequest, _context: grpc.aio.ServicerContext
    ) -> AsyncIterator[WatchFleetResponse]:
        while True:
            yield WatchFleetResponse(fleet=self.fleet())
            await self._moved.wait()
            self._moved.clear()

    async def RegisterWorker(
        self, request: registry_pb2.RegisterWorkerRequest, _context: grpc.aio.ServicerContext
    ) -> registry_pb2.RegisterWorkerResponse:
        self.registered.append(request)
        detail = registry_pb2.WorkerDetail(worker=worker(request.worker_id), runtime_endpoint=request.runtime_endpoint)
        detail.runtime_config.CopyFrom(request.runtime_config)
        return registry_pb2.RegisterWorkerResponse(worker=detail)

    async def ListWorkers(
        self, _request: registry_pb2.ListWorkersRequest, _context: grpc.aio.ServicerContext
    ) -> registry_pb2.ListWorkersResponse:
        return registry_pb2.ListWorkersResponse(
            workers=[registry_pb2.WorkerDetail(worker=each) for each in self.workers]
        )

    async def RemoveWorker(
        self, request: registry_pb2.RemoveWorkerRequest, context: grpc.aio.ServicerContext
    ) -> registry_pb2.RemoveWorkerResponse:
        if request.worker_id not in {each.worker_id for each in self.workers}:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such worker")
        return registry_pb2.RemoveWorkerResponse()

    async def DrainWorker(
        self, _request: registry_pb2.DrainWorkerRequest, _context: grpc.aio.ServicerContext
    ) -> AsyncIterator[registry_pb2.DrainWorkerResponse]:
        yield registry_pb2.DrainWorkerResponse(in_flight=1, drained=False)
        yield registry_pb2.DrainWorkerResponse(in_flight=0, drained=True)
