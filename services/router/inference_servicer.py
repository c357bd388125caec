"""InferenceService over gRPC: a thin rim around dispatch and the fleet view. The app adds it to the server."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
from speedinfer.router.v1 import inference_pb2, inference_pb2_grpc

from services.router import failure as failures
from services.router.counting import Counting
from services.router.fleet import FleetView
from services.router.intake import Intake, Running, check_asked
from services.router.pick import Need
from services.router.transport.port import Dispatch, WorkerFailure


class InferenceServicer(inference_pb2_grpc.InferenceServiceServicer):
    """See proto/speedinfer/router/v1/inference.proto."""

    def __init__(self, intake: Intake, fleet: FleetView, counting: Counting) -> None:
        self._intake = intake
        self._counting = counting
        self._fleet = fleet

    async def Generate(
        self, request: inference_pb2.GenerateRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[inference_pb2.GenerateResponse]:
        """See the proto."""
        running = self._intake.start(request.item)
        # A caller that leaves while a frame is being written is told to nobody but this.
        context.add_done_callback(_leaver(running))
        try:
            while frames := await running.next_frames():
                for frame in frames:
                    yield inference_pb2.GenerateResponse(frame=frame)
        finally:
            running.leave()

    async def HoldPlace(
        self, request: inference_pb2.HoldPlaceRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[inference_pb2.HoldPlaceResponse]:
        """See the proto."""
        request_id = request.context.request_id
        try:
            place = await self._intake.place(request)
        except WorkerFailure as failure:
            yield inference_pb2.HoldPlaceResponse(failure=failures.message(failure, "", 0))
            return
        # A caller that leaves while the answer is being written is told to nobody but this.
        context.add_done_callback(_giver_back(self._intake, request_id))
        try:
            yield inference_pb2.HoldPlaceResponse(place=inference_pb2.Place(worker_id=place.worker.worker_id))
            await place.over.wait()
        finally:
            self._intake.give_back(request_id)

    async def CountTokens(
        self, request: inference_pb2.CountTokensRequest, context: grpc.aio.ServicerContext
    ) -> inference_pb2.CountTokensResponse:
        """See the proto."""
        check_asked(request.context, request.operation)
        dispatch = Dispatch(
            request_id=request.context.request_id,
            attempt=1,
            operation=request.operation,
            model=request.model,
            stream=False,
            members=[(member.name, member.json) for member in request.members],
            output_limit=None,
            traceparent=request.context.traceparent,
            tracestate=request.context.tracestate,
        )
        needs = [Need(each.feature, each.param) for each in request.requirements]
        counted = await self._counting.count(
            dispatch, needs, request.preferred_worker_id, request.context.remaining_ms / 1000
        )
        if counted.why:
            return inference_pb2.CountTokensResponse(no_count=counted.why, worker_id=counted.worker_id)
        return inference_pb2.CountTokensResponse(prompt_tokens=counted.prompt_tokens, worker_id=counted.worker_id)

    async def GetFleet(
        self, request: inference_pb2.GetFleetRequest, context: grpc.aio.ServicerContext
    ) -> inference_pb2.GetFleetResponse:
        """See the proto."""
        return inference_pb2.GetFleetResponse(fleet=self._fleet.picture())

    async def WatchFleet(
        self, request: inference_pb2.WatchFleetRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[inference_pb2.WatchFleetResponse]:
        """See the proto."""
        async for fleet in self._fleet.watch():
            yield inference_pb2.WatchFleetResponse(fleet=fleet)


def _leaver(running: Running) -> Any:
    """What gRPC calls when a call is over, however it ended."""

    def leave(_context: grpc.aio.ServicerContext) -> None:
        running.leave()

    return leave


def _giver_back(intake: Intake, request_id: str) -> Any:
    """What gRPC calls when a call that keeps a place is over."""

    def give_back(_context: grpc.aio.ServicerContext) -> None:
        intake.give_back(request_id)

    return give_back
