"""A place on a worker with a bound, asked of the router before billing is asked for a hold. `admission.py` imports it.

Invariant: a place that was asked for is given up on every path, by `close`; that does no harm once its request uses it.
"""

import grpc
import structlog
from speedinfer.router.v1.inference_pb2 import HoldPlaceRequest, Requirement

from services.edge.arrival import Arrival
from services.edge.known_router import KnownRouter
from services.edge.openai_errors import ROUTER_FULL, ROUTER_UNAVAILABLE, TOTAL_DEADLINE, Refused, from_failure
from services.edge.openai_request import InferenceRequest
from services.edge.router_lost import Lost
from services.edge.router_pool import RouterPool

_log = structlog.get_logger(__name__)


class Place:
    """The call that waits for a place, and keeps it."""

    def __init__(
        self,
        routers: RouterPool,
        router: KnownRouter,
        arrival: Arrival,
        request: InferenceRequest,
        party: str,
        remaining_s: float,
    ) -> None:
        message = HoldPlaceRequest(
            context=arrival.context(remaining_s),
            model=request.model,
            requirements=[Requirement(feature=need.feature, param=need.param) for need in request.needs],
            party=party,
        )
        self._call = routers.hold_place(router, message)
        self._closed = False
        # The id that it was asked for.
        self.request_id = arrival.request_id
        # Where it is, once it is had.
        self.worker_id = ""

    async def wait(self) -> bool:
        """Wait for the place. False if it was closed meanwhile; Refused if there is none to be had."""
        try:
            answers = await self._call.take()
        except Lost as lost:
            if self._closed:
                return False
            _log.warning("place_not_answered", status=lost.code.name)
            if lost.code is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise Refused(TOTAL_DEADLINE) from None
            if lost.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise Refused(ROUTER_FULL) from None
            raise Refused(ROUTER_UNAVAILABLE) from None
        if self._closed:
            return False
        if not answers:
            raise Refused(ROUTER_UNAVAILABLE)
        answer = answers[0]
        if answer.WhichOneof("outcome") == "failure":
            raise Refused(from_failure(answer.failure))
        self.worker_id = answer.place.worker_id
        return True

    @property
    def router(self) -> KnownRouter:
        """The router that gave it, or is to."""
        return self._call.router

    def close(self) -> None:
        """Give it up, unless the request has it."""
        self._closed = True
        self._call.cancel()
