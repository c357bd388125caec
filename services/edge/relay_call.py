"""One number of a relay link, as whoever asked for it sees it. `relay_link.py` makes and feeds them.

Invariants: what was handed out counts as taken only when more is asked for, so that a client which does not take stops its own
worker; nothing is handed out after `cancel`; a deadline ends the call by itself, whatever the router does.
"""

import asyncio
from typing import Generic, Protocol, TypeVar

import grpc
from speedinfer.router.v1.frame_pb2 import Frame
from speedinfer.router.v1.inference_pb2 import HoldPlaceResponse

from services.common import relay_terms, rpc
from services.common.relay_terms import Repayment
from services.edge.router_lost import Lost

Answer = TypeVar("Answer", Frame, HoldPlaceResponse)


class Owner(Protocol):
    """The link."""

    @property
    def is_silent(self) -> bool:
        """The router says nothing, though it was asked."""

    def credit(self, number: int, credit_bytes: int) -> None:
        """Let the router send so much more."""

    def forget(self, number: int, *, cancel: bool) -> None:
        """Nothing more of this number is wanted."""


class RelayCall(Generic[Answer]):
    """One request, or one wait for a place."""

    def __init__(self, owner: Owner, number: int, message_number: int, window_bytes: int, timeout_s: float) -> None:
        """`message_number`: in which of the link's messages it was begun."""
        self._owner = owner
        self._number = number
        self.message_number = message_number
        self._loop = asyncio.get_running_loop()
        self._ready: list[Answer] = []
        self._ready_bytes = 0
        # Handed out; given back when more is asked for.
        self._out_bytes = 0
        self._repayment = Repayment(window_bytes)
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        # Of parts that came while the owner had something else to take.
        self._deferred_bytes = 0
        self._wanted: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._over = False
        self._timer = self._loop.call_later(timeout_s, self._expire)

    @property
    def is_silent(self) -> bool:
        """Its router says nothing, though it was asked."""
        return self._owner.is_silent

    async def take(self) -> list[Answer]:
        """What came, as much as is there; empty at the end, and after `cancel`. Lost or NotBegun if it ended otherwise. To ask
        again says that what was handed out before has been taken."""
        if self._out_bytes:
            self._repay(self._out_bytes)
            self._out_bytes = 0
        if not self._ready and self._deferred_bytes:
            self._repay(self._deferred_bytes)
            self._deferred_bytes = 0
        if not self._ready and not self._over:
            self._wanted = self._loop.create_future()
            try:
                await self._wanted
            finally:
                self._wanted = None
        if self._ready:
            ready, self._ready = self._ready, []
            self._out_bytes, self._ready_bytes = self._ready_bytes, 0
            return ready
        if self._error is not None:
            raise self._error
        return []

    async def close(self) -> None:
        """Give it up, if it has not ended by itself."""
        self.cancel()

    def cancel(self) -> None:
        """Give it up and wake whoever waits."""
        if not self._over or self._ready:
            self._ready.clear()
            self._end(cancel=True)

    def feed(self, answer: Answer, cost_bytes: int, *, last: bool) -> None:
        """The link has the next of it."""
        self._ready.append(answer)
        self._ready_bytes += cost_bytes
        if last:
            self._end(cancel=False)
        else:
            self._rouse()

    def add_part(self, part: bytes) -> None:
        """A piece of a frame, which needs more credit than there is at once: it is given back while the owner waits for just
        this frame, and not before it has taken what was there."""
        self._parts.append(part)
        self._parts_bytes += len(part)
        if self._parts_bytes > rpc.MAX_MESSAGE_BYTES:
            self._parts.clear()
            self.fail(Lost(grpc.StatusCode.RESOURCE_EXHAUSTED), cancel=True)
            return
        self._deferred_bytes += relay_terms.FRAME_BYTES + len(part)
        if self._wanted is not None:
            self._repay(self._deferred_bytes)
            self._deferred_bytes = 0

    def joined(self) -> tuple[Frame, int]:
        """The frame that all parts make, and what it still counts. DecodeError."""
        parts, self._parts, self._parts_bytes = self._parts, [], 0
        deferred, self._deferred_bytes = self._deferred_bytes, 0
        return Frame.FromString(b"".join(parts)), deferred

    def fail(self, error: Exception, *, cancel: bool = False) -> None:
        """It ended without an end."""
        if not self._over:
            self._error = error
            self._end(cancel=cancel)

    def _expire(self) -> None:
        self.fail(Lost(grpc.StatusCode.DEADLINE_EXCEEDED), cancel=True)

    def _repay(self, taken_bytes: int) -> None:
        if not self._over and (due := self._repayment.took(taken_bytes)):
            self._owner.credit(self._number, due)

    def _end(self, *, cancel: bool) -> None:
        if not self._over:
            self._over = True
            self._timer.cancel()
            self._owner.forget(self._number, cancel=cancel)
        self._rouse()

    def _rouse(self) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)
