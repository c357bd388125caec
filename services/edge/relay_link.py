"""One relay call of this edge to one router, from its hello to its end. `known_router.py` opens them, one after another.

Invariants: what the router says is read at once, always; only a ready link begins anything; whatever ends the call ends every
number on it, as not begun where it was never handed to gRPC, else as lost. docs/decisions/0014 has the rules, and 0019 those of
silence: a router that does not say that it answers pings is never silent.
"""

import asyncio
from enum import Enum
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError
from speedinfer.router.v1.frame_pb2 import Frame
from speedinfer.router.v1.inference_pb2 import GenerateItem, HoldPlaceRequest, HoldPlaceResponse
from speedinfer.router.v1.relay_pb2 import RelayEvent, RelayRefusal, RelayRefusalReason, RelayRequest, RelayResponse

from services.common import relay_terms
from services.common.relay_terms import Outgoing
from services.common.tasks import TaskSet
from services.edge.metrics import Metrics
from services.edge.relay_call import RelayCall
from services.edge.router_lost import Lost, NotBegun
from services.edge.silence import Silence, Verdict

_log = structlog.get_logger(__name__)
# A router that takes the call and says nothing is not there.
HELLO_WITHIN_S = 5.0
_COMMAND_BYTES = 16
_CODES = {
    RelayRefusalReason.RELAY_REFUSAL_REASON_INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    RelayRefusalReason.RELAY_REFUSAL_REASON_TOO_MANY: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class LinkState(Enum):
    """Where a link stands; it only ever goes down this list."""

    OPENING = 0
    READY = 1
    # The router takes nothing new; what runs goes on.
    LEAVING = 2
    OVER = 3


class RelayLink:
    """One call, and what is open on it."""

    def __init__(self, metrics: Metrics, window_bytes: int) -> None:
        self._metrics = metrics
        self._window_bytes = window_bytes
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, RelayCall[Any]] = {}
        self._last_number = 0
        self._outgoing: Outgoing[RelayRequest] = Outgoing(RelayRequest)
        self._wake: asyncio.Future[None] | None = None
        self._tasks = TaskSet()
        self._moved = asyncio.Event()
        self._given_up = False
        # None while there is nobody that answers pings.
        self._silence: Silence | None = None
        self.state = LinkState.OPENING
        # How it ended; None while it has not, or by our own word.
        self.code: grpc.StatusCode | None = None
        self.router_id = ""

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def is_over(self) -> bool:
        """The call has ended."""
        return self.state is LinkState.OVER

    @property
    def is_silent(self) -> bool:
        """The router says nothing, though it was asked."""
        return self._silence is not None and self._silence.is_silent

    def listen(self, now_s: float) -> Verdict:
        """Look whether the router is heard, and ask it where it is not; every silence.TICK_S."""
        if self._silence is None:
            return Verdict.NOTHING
        verdict = self._silence.look(now_s)
        if verdict is Verdict.ASK:
            self._room(0).ping = True
        return verdict

    async def past(self, state: LinkState) -> None:
        """Wait until the link is beyond a state."""
        while self.state.value <= state.value:
            self._moved.clear()
            await self._moved.wait()

    async def run(self, stub: Any) -> None:
        """Hold the call until it is over, however it ends."""
        call = stub.Relay()
        self._outgoing.room(0).hello.protocol = relay_terms.PROTOCOL
        self._tasks.spawn(self._write(call), "write-relay")
        patience = self._loop.call_later(HELLO_WITHIN_S, self._give_up, call)
        try:
            while (response := await call.read()) is not grpc.aio.EOF:
                self._take(response)
            self.code = await call.code()
        except grpc.aio.AioRpcError as error:
            self.code = error.code()
        except asyncio.CancelledError:
            # Giving the call up wakes whoever reads it with this.
            if not self._given_up:
                raise
            self.code = grpc.StatusCode.DEADLINE_EXCEEDED
        except _Broken as broken:
            _log.error("relay_refused", why=str(broken))
            self.code = grpc.StatusCode.FAILED_PRECONDITION
        finally:
            patience.cancel()
            call.cancel()
            self._finish()
            await self._tasks.cancel()

    def generate(self, item: GenerateItem, item_bytes: int, timeout_s: float) -> RelayCall[Frame]:
        """Begin a request. The link must be ready."""
        call, message = self._begin(item_bytes, timeout_s)
        command = message.commands.add(number=self._last_number)
        command.start.item.CopyFrom(item)
        command.start.credit_bytes = self._window_bytes
        return call

    def hold_place(self, request: HoldPlaceRequest, timeout_s: float) -> RelayCall[HoldPlaceResponse]:
        """Begin a wait for a place. The link must be ready."""
        call, message = self._begin(request.ByteSize(), timeout_s)
        message.commands.add(number=self._last_number, hold_place=request)
        return call

    def credit(self, number: int, credit_bytes: int) -> None:
        """See relay_call.Owner."""
        self._room(_COMMAND_BYTES).commands.add(number=number, credit_bytes=credit_bytes)

    def forget(self, number: int, *, cancel: bool) -> None:
        """See relay_call.Owner."""
        if self._calls.pop(number, None) is None:
            return
        if cancel and self.state is not LinkState.OVER:
            self._room(_COMMAND_BYTES).commands.add(number=number).cancel.SetInParent()
        elif self.state is LinkState.LEAVING:
            self._rouse()

    def _begin(self, item_bytes: int, timeout_s: float) -> tuple[RelayCall[Any], RelayRequest]:
        assert self.state is LinkState.READY, "only a ready link begins anything"
        self._last_number += 1
        message = self._room(item_bytes)
        call: RelayCall[Any] = RelayCall(
            self, self._last_number, self._outgoing.last_number, self._window_bytes, timeout_s
        )
        self._calls[self._last_number] = call
        return call, message

    def _take(self, response: RelayResponse) -> None:
        if self.state is LinkState.OPENING:
            self._greet(response)
        if self._silence is not None:
            self._silence.heard()
        if response.draining and self.state is LinkState.READY:
            self._move(LinkState.LEAVING)
            self._rouse()
        if response.events:
            self._metrics.relay_frames.observe(len(response.events))
        for event in response.events:
            call = self._calls.get(event.number)
            if call is not None:
                self._hand(call, event)

    def _greet(self, response: RelayResponse) -> None:
        if response.hello.protocol != relay_terms.PROTOCOL:
            raise _Broken(
                f"the router speaks the relay's protocol {response.hello.protocol}, this edge {relay_terms.PROTOCOL}"
            )
        self.router_id = response.hello.router_id
        if response.hello.max_credit_bytes:
            self._window_bytes = min(self._window_bytes, response.hello.max_credit_bytes)
        if response.hello.answers_pings:
            self._silence = Silence(self._loop.time())
        self._move(LinkState.READY)

    @staticmethod
    def _hand(call: RelayCall[Any], event: RelayEvent) -> None:
        kind = event.WhichOneof("event")
        if kind == "frame":
            frame = event.frame
            call.feed(frame, relay_terms.cost(frame), last=frame.HasField("end") or frame.HasField("failure"))
        elif kind == "place":
            call.feed(event.place, 0, last=event.place.HasField("failure"))
        elif kind == "part":
            call.add_part(event.part)
        elif kind == "last_part":
            call.add_part(event.last_part)
            try:
                frame, cost_bytes = call.joined()
            except DecodeError:
                call.fail(Lost(grpc.StatusCode.INTERNAL), cancel=True)
                return
            call.feed(frame, cost_bytes, last=frame.HasField("end") or frame.HasField("failure"))
        elif kind == "refusal":
            call.fail(_refused(event.refusal))

    async def _write(self, call: Any) -> None:
        try:
            while True:
                message = self._outgoing.take()
                if message is not None:
                    await call.write(message)
                elif self.state is LinkState.LEAVING and not self._calls:
                    # Nothing of ours is open, and nothing will be: the router may end the call.
                    await call.done_writing()
                    return
                else:
                    self._wake = self._loop.create_future()
                    await self._wake
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The call has ended; whoever reads it says how.
            return

    def _give_up(self, call: Any) -> None:
        if self.state is LinkState.OPENING:
            self._given_up = True
            call.cancel()

    def _finish(self) -> None:
        self._move(LinkState.OVER)
        self._silence = None
        calls, self._calls = self._calls, {}
        for each in calls.values():
            seen = each.message_number <= self._outgoing.taken
            each.fail(Lost(grpc.StatusCode.UNAVAILABLE) if seen else NotBegun())

    def _move(self, state: LinkState) -> None:
        self.state = state
        self._moved.set()

    def _room(self, item_bytes: int) -> RelayRequest:
        self._rouse()
        return self._outgoing.room(item_bytes)

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class _Broken(Exception):
    """The router does not follow the rules that this edge knows."""


def _refused(refusal: RelayRefusal) -> Exception:
    if refusal.reason == RelayRefusalReason.RELAY_REFUSAL_REASON_TURNED_AWAY:
        return NotBegun()
    _log.warning("relay_refused_request", reason=RelayRefusalReason.Name(refusal.reason), why=refusal.message)
    return Lost(_CODES.get(refusal.reason, grpc.StatusCode.INTERNAL))
