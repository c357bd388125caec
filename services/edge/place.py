"""A place on a worker with a bound, asked of the router before billing is asked for a hold. `admission.py` imports it.

Invariant: a place that was asked for is given up on every path, by `close`; that does no harm once its request uses it.
"""

import asyncio
from collections.abc import Sequence

import grpc
import structlog
from speedinfer.router.v1.fleet_pb2 import Worker, WorkerStatus
from speedinfer.router.v1.inference_pb2 import HoldPlaceRequest, HoldPlaceResponse, Requirement

from services.edge.arrival import Arrival
from services.edge.openai_errors import ROUTER_UNAVAILABLE, TOTAL_DEADLINE, Refused, from_failure
from services.edge.openai_request import InferenceRequest
from services.edge.router_call import RouterCall
from services.edge.router_client import RouterClient

_log = structlog.get_logger(__name__)


def is_needed(workers: Sequence[Worker], request: InferenceRequest) -> bool:
    """Whether a request needs a place: unless one of those that may take it now has no bound, so that there is room always."""
    wanted = frozenset(need.feature for need in request.needs)
    return not any(
        worker.max_concurrency == 0
        and worker.status == WorkerStatus.WORKER_STATUS_HEALTHY
        and worker.circuit == "closed"
        and wanted.issubset(worker.features)
        for worker in workers
    )


class Place:
    """The call that waits for a place, and keeps it."""

    def __init__(
        self, router: RouterClient, arrival: Arrival, request: InferenceRequest, party: str, remaining_s: float
    ) -> None:
        message = HoldPlaceRequest(
            context=arrival.context(remaining_s),
            model=request.model,
            requirements=[Requirement(feature=need.feature, param=need.param) for need in request.needs],
            party=party,
        )
        self._call: RouterCall[HoldPlaceResponse] = router.hold_place(message)
        self._closed = False
        # The id that it was asked for.
        self.request_id = arrival.request_id
        # Where it is, once it is had.
        self.worker_id = ""

    async def wait(self) -> bool:
        """Wait for the place. False if it was closed meanwhile; Refused if there is none to be had."""
        try:
            answer = await self._call.read()
        except asyncio.CancelledError:
            # Closing the call wakes whoever reads it with this.
            if self._closed:
                return False
            raise
        except grpc.aio.AioRpcError as error:
            _log.warning("place_not_answered", status=error.code().name)
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise Refused(TOTAL_DEADLINE) from None
            raise Refused(ROUTER_UNAVAILABLE) from None
        if not isinstance(answer, HoldPlaceResponse):
            raise Refused(ROUTER_UNAVAILABLE)
        if answer.WhichOneof("outcome") == "failure":
            raise Refused(from_failure(answer.failure))
        self.worker_id = answer.place.worker_id
        return not self._closed

    def close(self) -> None:
        """Give it up, unless the request has it."""
        self._closed = True
        self._call.cancel()
