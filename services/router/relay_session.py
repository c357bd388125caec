"""One relay call of one edge: its numbers, what waits to go back, and its end. `relay_servicer.py` makes one per call.

Invariants: whatever ends the call drops every request on it, at once; a number is used once; a worker is read only while its
request has credit and what waits for the edge is below its bound; a wrong item costs its own number, a breach of the protocol
the call. It knows nothing of gRPC.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import structlog
from speedinfer.router.v1 import inference_pb2, relay_pb2
from speedinfer.router.v1.frame_pb2 import Frame
from speedinfer.router.v1.relay_pb2 import RelayCommand, RelayRefusalReason, RelayRequest, RelayResponse

from services.common import relay_terms
from services.common.errors import InvalidArgument, ServiceError
from services.common.relay_terms import Allowance, Outgoing
from services.common.tasks import TaskSet
from services.router import failure as failures
from services.router.intake import Intake, Running
from services.router.metrics import Metrics
from services.router.transport.port import WorkerFailure

_log = structlog.get_logger(__name__)
# Numbers open on one call; an edge has 10,000 requests at most, and a place for some of them.
MAX_OPEN = 65_536
# What may wait for one edge before its requests stop reading their workers.
MAX_WAITING_BYTES = 4 * 1024 * 1024


class _Open:
    """One number that is open."""

    __slots__ = ("allowance", "asked", "room", "running", "task")

    def __init__(self, credit_bytes: int, asked: Any) -> None:
        self.allowance = Allowance(credit_bytes)
        # What is asked for, until it is begun: it keeps the whole message that it came in, and a stream may be long.
        self.asked = asked
        # Set while it waits for credit.
        self.room: asyncio.Future[None] | None = None
        self.running: Running | None = None
        self.task: asyncio.Task[None] | None = None

    def taken(self) -> Any:
        """What is asked for; once."""
        asked, self.asked = self.asked, None
        return asked

    def drop(self) -> None:
        """Nobody waits for more."""
        if self.running is not None:
            self.running.leave()
        if self.task is not None:
            self.task.cancel()


Serve = Callable[[int, _Open], Awaitable[None]]


class RelaySession:
    """What an edge asked for on one call."""

    def __init__(self, router_id: str, intake: Intake, metrics: Metrics, *, leaving: bool) -> None:
        self._router_id = router_id
        self._intake = intake
        self._metrics = metrics
        self._leaving = leaving
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, _Open] = {}
        self._last_number = 0
        self._greeted = False
        self._outgoing: Outgoing[RelayResponse] = Outgoing(RelayResponse)
        self._wake: asyncio.Future[None] | None = None
        # Requests that wait until the way to the edge is free again, in order; one that is cancelled waits no longer.
        self._crowded: dict[asyncio.Future[None], None] = {}
        self._tasks = TaskSet()
        self._over = False
        self._error: ServiceError | None = None

    def __len__(self) -> int:
        return len(self._open)

    def take(self, request: RelayRequest) -> None:
        """What the edge says. InvalidArgument if it breaks the protocol."""
        if not self._greeted:
            self._greet(request)
            return
        if request.ping:
            # Whatever requests wait for: it asks whether this loop runs.
            self._room(0).pong = True
        for command in request.commands:
            if not self._over:
                self._obey(command)

    async def messages(self) -> AsyncIterator[RelayResponse]:
        """What goes to the edge, until the call is over; a ServiceError says what broke it."""
        while not self._over:
            message = self._outgoing.take()
            if message is None:
                self._wake = self._loop.create_future()
                await self._wake
                continue
            if self._crowded and self._outgoing.waiting_bytes < MAX_WAITING_BYTES:
                self._let_crowd_in()
            if message.events:
                self._metrics.relay_frames.observe(len(message.events))
            yield message
        if self._error is not None:
            raise self._error

    def leave(self) -> None:
        """Nothing new is taken from here on; what runs goes on."""
        if not self._leaving and not self._over:
            self._leaving = True
            if self._greeted:
                self._room(0).draining = True

    def close(self, error: ServiceError | None = None) -> None:
        """The call is over; a second time does nothing."""
        if self._over:
            return
        self._over = True
        self._error = error
        for opened in list(self._open.values()):
            opened.drop()
        self._let_crowd_in()
        self._rouse()

    async def ended(self) -> None:
        """Wait until nothing of it runs any more."""
        await self._tasks.cancel()

    def _greet(self, request: RelayRequest) -> None:
        if request.hello.protocol != relay_terms.PROTOCOL:
            raise InvalidArgument(
                f"the relay's protocol {request.hello.protocol} is not known here; this router's is {relay_terms.PROTOCOL}",
                field="hello.protocol",
            )
        self._greeted = True
        message = self._room(0)
        message.hello.protocol = relay_terms.PROTOCOL
        message.hello.router_id = self._router_id
        message.hello.max_credit_bytes = relay_terms.MAX_CREDIT_BYTES
        message.hello.answers_pings = True
        message.draining = self._leaving

    def _obey(self, command: RelayCommand) -> None:
        kind = command.WhichOneof("command")
        number = command.number
        if kind == "credit_bytes":
            opened = self._open.get(number)
            if opened is not None:
                opened.allowance.add(command.credit_bytes)
                if opened.room is not None and not opened.allowance.is_spent and not opened.room.done():
                    opened.room.set_result(None)
        elif kind == "start":
            start = command.start
            self._begin(number, start.credit_bytes, self._serve, start.item)
        elif kind == "hold_place":
            self._begin(number, 0, self._keep, command.hold_place)
        elif kind == "cancel":
            opened = self._open.get(number)
            if opened is not None:
                opened.drop()

    def _begin(self, number: int, credit_bytes: int, what: Serve, asked: Any) -> None:
        if number <= self._last_number:
            raise InvalidArgument("numbers rise, and each is used once", field="number")
        self._last_number = number
        if self._leaving:
            self._refuse(number, RelayRefusalReason.RELAY_REFUSAL_REASON_TURNED_AWAY, "this router takes nothing new")
            return
        if len(self._open) >= MAX_OPEN:
            self._refuse(number, RelayRefusalReason.RELAY_REFUSAL_REASON_TOO_MANY, "too many are open on this call")
            return
        opened = self._open[number] = _Open(credit_bytes, asked)
        opened.task = self._tasks.spawn(self._guarded(what, number, opened), "relayed-request")
        # Not left to the task's own code: one that is cancelled before its first step never runs any.
        opened.task.add_done_callback(partial(self._ended, number))

    def _ended(self, number: int, _task: object) -> None:
        self._open.pop(number, None)

    async def _guarded(self, what: Serve, number: int, opened: _Open) -> None:
        try:
            await what(number, opened)
        except InvalidArgument as error:
            self._refuse(number, RelayRefusalReason.RELAY_REFUSAL_REASON_INVALID, error.message)
        except Exception as error:
            _log.exception("relayed_request_failed", error=type(error).__name__)
            self._refuse(number, RelayRefusalReason.RELAY_REFUSAL_REASON_INTERNAL, "the router's log has it")

    async def _serve(self, number: int, opened: _Open) -> None:
        running = opened.running = self._intake.start(opened.taken())
        try:
            while frames := await running.next_frames():
                for frame in frames:
                    await self._send(number, opened, frame)
                is_last = _is_last(frame)
                # Nothing that went out is kept while it waits for more.
                del frames, frame
                if is_last:
                    return
                await self._may_go_on(opened)
        finally:
            running.leave()
        # Nobody must wait for what will never come.
        self._refuse(number, RelayRefusalReason.RELAY_REFUSAL_REASON_INTERNAL, "the request ended without an end")

    async def _send(self, number: int, opened: _Open, frame: Frame) -> None:
        cost = relay_terms.cost(frame)
        if cost > relay_terms.PART_BYTES:
            await self._send_in_parts(number, opened, frame)
            return
        opened.allowance.spend(cost)
        self._room(cost).events.add(number=number, frame=frame)

    async def _send_in_parts(self, number: int, opened: _Open, frame: Frame) -> None:
        data = memoryview(frame.SerializeToString())
        size = relay_terms.PART_BYTES
        for start in range(0, len(data), size):
            await self._may_go_on(opened)
            part = bytes(data[start : start + size])
            cost = relay_terms.FRAME_BYTES + len(part)
            opened.allowance.spend(cost)
            event = self._room(cost).events.add(number=number)
            if start + size < len(data):
                event.part = part
            else:
                event.last_part = part

    async def _may_go_on(self, opened: _Open) -> None:
        """Wait until the request has credit, and the way to the edge is free."""
        while opened.allowance.is_spent:
            opened.room = self._loop.create_future()
            try:
                await opened.room
            finally:
                opened.room = None
        while self._outgoing.waiting_bytes >= MAX_WAITING_BYTES and not self._over:
            turn = self._loop.create_future()
            self._crowded[turn] = None
            try:
                await turn
            finally:
                self._crowded.pop(turn, None)

    async def _keep(self, number: int, opened: _Open) -> None:
        request: inference_pb2.HoldPlaceRequest = opened.taken()
        request_id = request.context.request_id
        try:
            place = await self._intake.place(request)
        except WorkerFailure as failure:
            answer = inference_pb2.HoldPlaceResponse(failure=failures.message(failure, "", 0))
            self._room(relay_terms.FRAME_BYTES).events.add(number=number, place=answer)
            return
        try:
            answer = inference_pb2.HoldPlaceResponse(place=inference_pb2.Place(worker_id=place.worker.worker_id))
            self._room(relay_terms.FRAME_BYTES).events.add(number=number, place=answer)
            await place.over.wait()
        finally:
            self._intake.give_back(request_id)

    def _refuse(self, number: int, reason: RelayRefusalReason.ValueType, message: str) -> None:
        refusal = relay_pb2.RelayRefusal(reason=reason, message=message)
        self._room(relay_terms.FRAME_BYTES).events.add(number=number, refusal=refusal)

    def _room(self, item_bytes: int) -> RelayResponse:
        self._rouse()
        return self._outgoing.room(item_bytes)

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _let_crowd_in(self) -> None:
        crowd, self._crowded = self._crowded, {}
        for turn in crowd:
            if not turn.done():
                turn.set_result(None)


def _is_last(frame: Frame) -> bool:
    return frame.HasField("end") or frame.HasField("failure")
