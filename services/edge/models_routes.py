"""`GET /v1/models` and `GET /v1/models/{id}`: the models with a registered worker that the key may use."""

from typing import Any

import grpc
from aiohttp import web
from speedinfer.router.v1.fleet_pb2 import Model

from services.edge import client_headers
from services.edge.admission import Admission
from services.edge.answer_json import answer
from services.edge.arrival import ARRIVAL
from services.edge.fleet_view import FleetView
from services.edge.openai_errors import ROUTER_UNAVAILABLE, Refused, model_not_allowed, model_not_found


class ModelsRoutes:
    """Answers what can be asked for."""

    def __init__(self, admission: Admission, fleet: FleetView) -> None:
        self._admission = admission
        self._fleet = fleet

    async def all(self, request: web.Request) -> web.Response:
        """All of them."""
        caller = await self._admission.authorise(client_headers.bearer(request.headers))
        request[ARRIVAL].key_id = caller.key_id
        models = [_json(model) for model in await self._models() if caller.may_use(model.name)]
        return answer({"object": "list", "data": models})

    async def get(self, request: web.Request) -> web.Response:
        """One of them; its id may hold slashes."""
        caller = await self._admission.authorise(client_headers.bearer(request.headers))
        request[ARRIVAL].key_id = caller.key_id
        name = request.match_info["model"]
        if not caller.may_use(name):
            raise Refused(model_not_allowed(name))
        for model in await self._models():
            if model.name == name:
                return answer(_json(model))
        raise Refused(model_not_found(name))

    async def _models(self) -> list[Model]:
        try:
            fleet = await self._fleet.live()
        except grpc.aio.AioRpcError:
            raise Refused(ROUTER_UNAVAILABLE) from None
        return [model for model in fleet.models if model.worker_ids]


def _json(model: Model) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": model.created_at.seconds, "owned_by": "speedinfer"}
