"""WorkerRegistryService over gRPC: a thin rim around the registrar. The app adds it behind the admin gate."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf import json_format, struct_pb2
from speedinfer.router.v1 import registry_pb2, registry_pb2_grpc

from services.common.errors import InvalidArgument
from services.router import fleet
from services.router.registrar import Registrar
from services.router.registration import InvalidRegistration
from services.router.worker import Worker

# What runs at other routers changes unheard.
LOOK_EVERY_S = 0.25


class RegistryServicer(registry_pb2_grpc.WorkerRegistryServiceServicer):
    """See proto/speedinfer/router/v1/registry.proto."""

    def __init__(self, registrar: Registrar, running: Callable[[Worker], int | None]) -> None:
        """`running`: the requests that run on a worker that drains; None if that is not known yet."""
        self._registrar = registrar
        self._running = running

    async def RegisterWorker(
        self, request: registry_pb2.RegisterWorkerRequest, context: grpc.aio.ServicerContext
    ) -> registry_pb2.RegisterWorkerResponse:
        """See the proto."""
        try:
            worker = await self._registrar.register(document(request))
        except InvalidRegistration as error:
            raise InvalidArgument(str(error), field=error.field) from None
        return registry_pb2.RegisterWorkerResponse(worker=detail(worker))

    async def CheckWorker(
        self, request: registry_pb2.CheckWorkerRequest, context: grpc.aio.ServicerContext
    ) -> registry_pb2.CheckWorkerResponse:
        """See the proto."""
        try:
            worker, findings = await self._registrar.check(document(request.registration))
        except InvalidRegistration as error:
            raise InvalidArgument(str(error), field=error.field) from None
        return registry_pb2.CheckWorkerResponse(worker=detail(worker), findings=findings)

    async def ListWorkers(
        self, request: registry_pb2.ListWorkersRequest, context: grpc.aio.ServicerContext
    ) -> registry_pb2.ListWorkersResponse:
        """See the proto."""
        return registry_pb2.ListWorkersResponse(workers=[detail(worker) for worker in self._registrar.all()])

    async def GetWorker(
        self, request: registry_pb2.GetWorkerRequest, context: grpc.aio.ServicerContext
    ) -> registry_pb2.GetWorkerResponse:
        """See the proto."""
        return registry_pb2.GetWorkerResponse(worker=detail(self._registrar.get(request.worker_id)))

    async def DrainWorker(
        self, request: registry_pb2.DrainWorkerRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[registry_pb2.DrainWorkerResponse]:
        """See the proto."""
        worker = await self._registrar.drain(request.worker_id)
        loop = asyncio.get_running_loop()
        end = loop.time() + request.wait_ms / 1000
        told: int | None = -1
        while (running := self._running(worker)) != 0 and loop.time() < end:
            if running != told and running is not None:
                told = running
                yield registry_pb2.DrainWorkerResponse(in_flight=told)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(end, loop.time() + LOOK_EVERY_S)):
                    await worker.load.changed()
        left = worker.in_flight if running is None else running
        yield registry_pb2.DrainWorkerResponse(in_flight=left, drained=running == 0)

    async def RemoveWorker(
        self, request: registry_pb2.RemoveWorkerRequest, context: grpc.aio.ServicerContext
    ) -> registry_pb2.RemoveWorkerResponse:
        """See the proto."""
        await self._registrar.remove(request.worker_id)
        return registry_pb2.RemoveWorkerResponse()


def document(request: registry_pb2.RegisterWorkerRequest) -> dict[str, Any]:
    """The registration's JSON form."""
    return {
        "worker_id": request.worker_id,
        "worker_type": request.worker_type,
        "runtime": request.runtime,
        "runtime_endpoint": request.runtime_endpoint,
        "supported_models": list(request.supported_models),
        "runtime_config": _object(request.runtime_config, "runtime_config"),
        "runtime_metadata": _object(request.runtime_metadata, "runtime_metadata"),
    }


def detail(worker: Worker) -> registry_pb2.WorkerDetail:
    """One worker as operators see it."""
    return registry_pb2.WorkerDetail(
        worker=fleet.public(worker),
        runtime_endpoint=worker.registration.endpoint,
        runtime_config=fleet.to_struct(worker.registration.shown_config()),
        detail=worker.health.finding.detail,
        warnings=worker.health.finding.warnings,
    )


def _object(struct: struct_pb2.Struct, field: str) -> dict[str, Any]:
    try:
        value = _whole(json_format.MessageToDict(struct))
    except ValueError:
        # A Struct can hold them, JSON cannot.
        raise InvalidArgument(f"{field}: NaN and infinity are no JSON values", field=field) from None
    assert isinstance(value, dict), "a Struct is an object"
    return value


def _whole(value: Any) -> Any:
    """A Struct knows only doubles; what was written as an integer becomes one again."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    return value
