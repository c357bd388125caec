"""The operators' listener: `/admin/v1/workers` and `/metrics`.

The token is checked here and again by the router, which gets it passed on. `app.py` imports it.
"""

import re
from typing import Any

import grpc
from aiohttp import web
from speedinfer.router.v1 import registry_pb2

from services.common import admin_token, ids, registration_form, rpc
from services.edge import json_object, worker_json
from services.edge import metrics as metrics_module
from services.edge.answer_json import answer
from services.edge.body import read_json
from services.edge.body_room import BodyRoom
from services.edge.metrics import Metrics
from services.edge.openai_errors import ADMIN_TOKEN_NEEDED, ROUTER_UNAVAILABLE, Problem, Refused, invalid
from services.edge.router_client import MAX_DRAIN_WAIT_S
from services.edge.router_pool import RouterPool

_MAX_BODY_BYTES = 1024 * 1024
_MAX_BODIES_BYTES = 16 * 1024 * 1024
_BODY_TIMEOUT_S = 75.0
_MAX_DEPTH = 32
# Leading zeros are harmless; without a bound of digits it is no number that Python reads.
_WAIT_S = re.compile(r"[0-9]{1,20}")


class AdminRoutes:
    """What operators do over HTTP."""

    def __init__(self, routers: RouterPool, token: str, metrics: Metrics) -> None:
        self._routers = routers
        self._token = token
        self._metrics = metrics
        self._room = BodyRoom(_MAX_BODIES_BYTES, _MAX_BODIES_BYTES)

    async def register(self, request: web.Request) -> web.Response:
        """Check and store a worker; an id that exists is replaced."""
        self._gate(request)
        claim = self._room.claim("")
        try:
            registration = _registration(await read_json(request, _MAX_BODY_BYTES, _BODY_TIMEOUT_S, claim))
        finally:
            claim.release()
        reply = await self._call("RegisterWorker", registration)
        return answer(worker_json.for_operators(reply.worker))

    async def list_all(self, request: web.Request) -> web.Response:
        """All workers."""
        self._gate(request)
        reply = await self._call("ListWorkers", registry_pb2.ListWorkersRequest())
        return answer({"workers": [worker_json.for_operators(each) for each in reply.workers]})

    async def get(self, request: web.Request) -> web.Response:
        """One worker."""
        self._gate(request)
        worker_id = _worker_id(request)
        reply = await self._call("GetWorker", registry_pb2.GetWorkerRequest(worker_id=worker_id))
        return answer(worker_json.for_operators(reply.worker))

    async def remove(self, request: web.Request) -> web.Response:
        """Forget a worker; its running requests finish."""
        self._gate(request)
        worker_id = _worker_id(request)
        await self._call("RemoveWorker", registry_pb2.RemoveWorkerRequest(worker_id=worker_id))
        return answer({"worker_id": worker_id, "removed": True})

    async def drain(self, request: web.Request) -> web.Response:
        """Stop new work for a worker; `?wait_s=` waits so long for its last request."""
        self._gate(request)
        worker_id = _worker_id(request)
        text = request.query.get("wait_s", "0")
        if not _WAIT_S.fullmatch(text) or int(text) > MAX_DRAIN_WAIT_S:
            raise Refused(invalid(f"'wait_s' must be a whole number up to {MAX_DRAIN_WAIT_S:g}.", "wait_s"))
        message = registry_pb2.DrainWorkerRequest(worker_id=worker_id, wait_ms=int(text) * 1000)
        try:
            last = await self._routers.first.client.drain_worker(message, self._token)
        except grpc.aio.AioRpcError as error:
            raise Refused(_problem(error)) from None
        in_flight, drained = (last.in_flight, last.drained) if last is not None else (0, False)
        return answer({"worker_id": worker_id, "in_flight": in_flight, "drained": drained})

    async def metrics(self, _request: web.Request) -> web.Response:
        """The edge's metrics, for Prometheus."""
        return web.Response(body=self._metrics.text(), headers={"content-type": metrics_module.CONTENT_TYPE})

    def _gate(self, request: web.Request) -> None:
        if not admin_token.is_bearer(request.headers.get("authorization"), self._token):
            raise Refused(ADMIN_TOKEN_NEEDED, {"www-authenticate": "Bearer"})

    async def _call(self, method: str, message: Any) -> Any:
        try:
            return await self._routers.first.client.registry(method, message, self._token)
        except grpc.aio.AioRpcError as error:
            raise Refused(_problem(error)) from None


def _worker_id(request: web.Request) -> str:
    """The id in the path. Of what cannot be one there is no worker, and it may be longer than a call to the router holds."""
    worker_id = request.match_info["worker_id"]
    if not ids.is_worker_id(worker_id):
        raise Refused(
            Problem(
                404, "There is no worker with such an id.", "invalid_request_error", "worker_not_found", "worker_id"
            )
        )
    return worker_id


def _registration(body: bytes) -> registry_pb2.RegisterWorkerRequest:
    values, _ = json_object.parse(body, _MAX_DEPTH)
    try:
        return registration_form.read(values)
    except registration_form.WrongForm as error:
        raise Refused(invalid(str(error), error.field or None)) from None


def _problem(error: grpc.aio.AioRpcError) -> Problem:
    code = error.code()
    _, field = rpc.reason_of(error)
    message = error.details() or code.name
    if code == grpc.StatusCode.INVALID_ARGUMENT:
        return invalid(message, field or None)
    if code == grpc.StatusCode.NOT_FOUND:
        return Problem(404, message, "invalid_request_error", "worker_not_found", field or "worker_id")
    if code == grpc.StatusCode.UNAUTHENTICATED:
        return Problem(
            502, "The router does not accept this edge's admin token.", "server_error", "admin_token_mismatch"
        )
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return ROUTER_UNAVAILABLE
    return Problem(502, message, "server_error", "router_error")
