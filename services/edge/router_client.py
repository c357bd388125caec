"""One router as the edge calls it: dispatch, the picture of the fleet, and the registry for operators.

A dispatch that a router has seen is never repeated here: whether another worker may be tried is the router's to decide.
"""

from typing import Any

import grpc
from speedinfer.router.v1 import fleet_pb2, inference_pb2, inference_pb2_grpc, registry_pb2_grpc, relay_pb2_grpc

from services.common import rpc
from services.edge.router_call import RouterCall

FLEET_TIMEOUT_S = 2.0
REGISTRY_TIMEOUT_S = 60.0
MAX_DRAIN_WAIT_S = 300.0
# The router counts the same deadline and can say more about it; the call's own is only there if it does not.
DEADLINE_SLACK_S = 2.0


class RouterClient:
    """Calls of InferenceService and WorkerRegistryService."""

    def __init__(self, target: str) -> None:
        self.channel = rpc.channel(target)
        self._inference = inference_pb2_grpc.InferenceServiceStub(self.channel)
        self.relay = relay_pb2_grpc.RelayServiceStub(self.channel)
        self._registry: Any = registry_pb2_grpc.WorkerRegistryServiceStub(self.channel)

    def generate(self, item: inference_pb2.GenerateItem) -> RouterCall[inference_pb2.GenerateResponse]:
        """Dispatch a request; the call's responses are its frames."""
        timeout_s = item.context.remaining_ms / 1000 + DEADLINE_SLACK_S
        request = inference_pb2.GenerateRequest(item=item)
        return RouterCall(self.channel, self._inference.Generate, request, timeout_s)

    def hold_place(self, request: inference_pb2.HoldPlaceRequest) -> RouterCall[inference_pb2.HoldPlaceResponse]:
        """Wait for a place on a worker; the call keeps it."""
        timeout_s = request.context.remaining_ms / 1000 + DEADLINE_SLACK_S
        return RouterCall(self.channel, self._inference.HoldPlace, request, timeout_s)

    async def count_tokens(
        self, request: inference_pb2.CountTokensRequest, timeout_s: float
    ) -> inference_pb2.CountTokensResponse:
        """How many tokens a prompt has, by a worker's word. AioRpcError if the router does not answer."""
        return await rpc.answer(self._inference.CountTokens, request, timeout_s)

    async def fleet(self) -> fleet_pb2.Fleet:
        """What the router knows now. AioRpcError if it does not answer."""
        answer = await rpc.answer(self._inference.GetFleet, inference_pb2.GetFleetRequest(), FLEET_TIMEOUT_S)
        return answer.fleet

    def watch(self) -> grpc.aio.UnaryStreamCall[inference_pb2.WatchFleetRequest, inference_pb2.WatchFleetResponse]:
        """The picture, and again after every change."""
        return self._inference.WatchFleet(inference_pb2.WatchFleetRequest())

    async def registry(self, method: str, request: Any, admin_token: str) -> Any:
        """A unary call of the registry on an operator's behalf."""
        metadata = (("authorization", f"Bearer {admin_token}"),)
        return await rpc.answer(getattr(self._registry, method), request, REGISTRY_TIMEOUT_S, metadata, reads=False)

    async def drain_worker(self, request: Any, admin_token: str) -> Any:
        """The last answer of a drain."""
        metadata = (("authorization", f"Bearer {admin_token}"),)
        timeout_s = request.wait_ms / 1000 + REGISTRY_TIMEOUT_S
        last = None
        async for answer in self._registry.DrainWorker(request, timeout=timeout_s, metadata=metadata):
            last = answer
        return last

    async def close(self) -> None:
        """Close the connection."""
        await self.channel.close()
