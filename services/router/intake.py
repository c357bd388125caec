"""What callers may ask of the router, checked and begun. Both inference services use it: whichever way a request comes, the
same happens.
"""

from typing import Protocol

from speedinfer.common.v1.context_pb2 import RequestContext
from speedinfer.common.v1.operation_pb2 import (
    OPERATION_CHAT_COMPLETION,
    OPERATION_COMPLETION,
    OPERATION_EMBEDDING,
    Operation,
)
from speedinfer.router.v1 import frame_pb2, inference_pb2

from services.common.errors import InvalidArgument
from services.router import failure as failures
from services.router.dispatch import Dispatcher
from services.router.pick import Need
from services.router.places import Patience, Place, Places

_OPERATIONS = frozenset({OPERATION_CHAT_COMPLETION, OPERATION_COMPLETION, OPERATION_EMBEDDING})
# Also the inputs of one embedding request, which are a few thousand.
MAX_CHOICES = 4096


class Running(Protocol):
    """A request that was begun."""

    async def next_frames(self) -> list[frame_pb2.Frame]:
        """What the caller gets next; empty when all was given."""

    def leave(self) -> None:
        """Nobody waits for more; a second time does no harm."""


class Intake(Protocol):
    """The way into one router."""

    def start(self, item: inference_pb2.GenerateItem) -> Running:
        """Begin a request. InvalidArgument if it is none that the edge ever sends."""

    async def place(self, request: inference_pb2.HoldPlaceRequest) -> Place:
        """Wait for a place. WorkerFailure if there is none to be had; InvalidArgument. Kept until `give_back`."""

    def give_back(self, request_id: str) -> None:
        """Keep no place for this request any longer; nothing happens if it was used."""


class Gate:
    """Implements Intake with a dispatcher and its places."""

    def __init__(self, dispatcher: Dispatcher, places: Places, queue_wait_s: float) -> None:
        self._dispatcher = dispatcher
        self._places = places
        self._queue_wait_s = queue_wait_s

    def start(self, item: inference_pb2.GenerateItem) -> Running:
        """See Intake."""
        _check(item)
        return self._dispatcher.start(item)

    async def place(self, request: inference_pb2.HoldPlaceRequest) -> Place:
        """See Intake."""
        request_id = request.context.request_id
        if not request_id:
            raise InvalidArgument("a place needs its request's id", field="context.request_id")
        patience = Patience.of(self._queue_wait_s, request.context.remaining_ms / 1000)
        needs = [Need(each.feature, each.param) for each in request.requirements]
        if self._dispatcher.draining:
            raise failures.draining()
        return await self._places.keep(request_id, request.model, needs, request.party, patience)

    def give_back(self, request_id: str) -> None:
        """See Intake."""
        self._places.give_back(request_id)


def check_asked(context: RequestContext, operation: Operation.ValueType) -> None:
    """InvalidArgument where an item has no id, or asks for what there is not."""
    if not context.request_id:
        raise InvalidArgument("an item needs its request's id", field="context.request_id")
    if operation not in _OPERATIONS:
        raise InvalidArgument("an item needs a known operation", field="operation")


def _check(item: inference_pb2.GenerateItem) -> None:
    """Refuse what the edge never sends."""
    check_asked(item.context, item.operation)
    if item.operation == OPERATION_EMBEDDING and item.stream:
        raise InvalidArgument("embeddings are not streamed", field="stream")
    if item.HasField("output_limit") and item.output_limit < 1:
        raise InvalidArgument("an output limit is at least 1", field="output_limit")
    if item.choices > MAX_CHOICES:
        raise InvalidArgument(f"at most {MAX_CHOICES} choices", field="choices")
