"""`/health` (the workers), `/livez` (this process), `/readyz` (whether requests can be served here)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import grpc
from aiohttp import web
from grpc_health.v1 import health_pb2, health_pb2_grpc
from speedinfer.router.v1 import registry_pb2

from services.common import rpc
from services.edge import worker_json
from services.edge.admission import Admission
from services.edge.answer_json import answer
from services.edge.coalesce import Shared
from services.edge.fleet_view import FleetView

_CHECK_TIMEOUT_S = 1.0
_REGISTRY = registry_pb2.DESCRIPTOR.services_by_name["WorkerRegistryService"].full_name


class HealthRoutes:
    """Answers how things stand, asked of the services themselves."""

    def __init__(
        self, admission: Admission, fleet: FleetView, channels: Mapping[str, Callable[[], Sequence[grpc.aio.Channel]]]
    ) -> None:
        """`channels`: by the service's name, to each of its processes; one that answers is enough."""
        self._admission = admission
        self._fleet = fleet
        self._channels = channels
        self._checks: Shared[bool] = Shared()
        self._version = version("speedinfer")

    async def health(self, _request: web.Request) -> web.Response:
        """The workers as the router sees them now. 503 if none can serve."""
        try:
            fleet = await self._fleet.live()
        except grpc.aio.AioRpcError:
            return answer({"status": "unavailable", "version": self._version, "workers": []}, 503)
        status = worker_json.overall(fleet)
        workers = [worker_json.public(worker) for worker in fleet.workers]
        body = {"status": status, "version": self._version, "workers": workers}
        return answer(body, 503 if status == "unavailable" else 200)

    async def live(self, _request: web.Request) -> web.Response:
        """The process is up."""
        return answer({"status": "ok"})

    async def ready(self, _request: web.Request) -> web.Response:
        """Router and billing answer, and this edge takes work."""
        if self._admission.draining:
            return answer({"status": "draining"}, 503)
        names = list(self._channels)
        *states, cut_off = await asyncio.gather(
            *(self._checks.get(name, partial(self._check, name)) for name in names),
            self._checks.get(_REGISTRY, self._is_cut_off),
        )
        failing = [name for name, serving in zip(names, states, strict=True) if not serving]
        if failing:
            return answer({"status": "not_ready", "not_reachable": failing}, 503)
        # Requests are served all the same, with the workers that the router knows.
        return answer({"status": "ok", "degraded": ["registry"]} if cut_off else {"status": "ok"})

    async def _check(self, name: str) -> bool:
        states = await asyncio.gather(*map(_state, self._channels[name]()))
        return health_pb2.HealthCheckResponse.SERVING in states

    async def _is_cut_off(self) -> bool:
        """Whether some router cannot reach the registry that it shares."""
        states = await asyncio.gather(*(_state(channel, _REGISTRY) for channel in self._channels["router"]()))
        return health_pb2.HealthCheckResponse.NOT_SERVING in states


async def _state(channel: grpc.aio.Channel, service: str = "") -> int | None:
    """What a service says of itself; None if it does not answer."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    try:
        reply = await rpc.answer(stub.Check, health_pb2.HealthCheckRequest(service=service), _CHECK_TIMEOUT_S)
    except grpc.aio.AioRpcError:
        return None
    return int(reply.status)
