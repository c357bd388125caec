"""An answer while it is read from a worker. Only `dispatch.py` uses it.

A task of its own reads ahead, up to a bound, so that what became ready in one turn of the loop goes on together, and so that
an answer which nobody reads any more can be left to end in its own way. Invariant: the worker's slot is given back exactly
once, when the reading is over or its answer is complete; unless the same worker gets the request once more, in that slot.
"""

import asyncio
from collections.abc import AsyncIterator

import structlog
from speedinfer.router.v1.frame_pb2 import FAILURE_REASON_UPSTREAM

from services.common.tasks import TaskSet
from services.router.transport.port import Chunk, Event, WorkerFailure
from services.router.worker import Slot

_log = structlog.get_logger(__name__)

BUFFER_BYTES = 64 * 1024
# What an event costs in the buffer beyond its text.
_EVENT_BYTES = 64


class Reading:
    """The events of one answer, in batches."""

    def __init__(self, events: AsyncIterator[Event], slot: Slot, tasks: TaskSet, *, end_wait_s: float = 0.0) -> None:
        """`end_wait_s`: see port.Transport."""
        self._events = events
        self._slot = slot
        self._end_wait_s = end_wait_s
        self._ready: list[Event] = []
        self._bytes = 0
        self._over = False
        self._left = False
        self._wanted: asyncio.Future[bool] | None = None
        # One timer for all waits: moved only where one ends before it, it looks when it is due how far the last one goes.
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._until = 0.0
        self._room: asyncio.Future[None] | None = None
        # Why the answer broke off; known once all events before were taken.
        self.failure: WorkerFailure | None = None
        self._loop = asyncio.get_running_loop()
        self._task = tasks.spawn(self._read(), "read-worker")
        # Not left to the task's own code: one that is cancelled before its first step never runs any.
        self._task.add_done_callback(self._finished)

    @property
    def ended(self) -> bool:
        """All events were taken, and no more will come."""
        return self._over and not self._ready

    async def wait(self, until: float) -> bool:
        """Wait for events or the end; False if the loop's clock reaches `until` first."""
        if self._ready or self._over:
            return True
        self._until = until
        if self._timer is None or until < self._due:
            self._set_timer()
        self._wanted = self._loop.create_future()
        try:
            return await self._wanted
        finally:
            self._wanted = None

    def take(self) -> list[Event]:
        """What is ready; makes room for more."""
        events, self._ready = self._ready, []
        self._bytes = 0
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        return events

    def break_off(self, failure: WorkerFailure) -> None:
        """End it from our side with a failure, as if the worker had."""
        self.failure = failure
        self._over = True
        self._settle(True)
        self._task.cancel()

    @property
    def keeps_slot(self) -> bool:
        """Whether a reading that has failed still has its slot, since the request may go once more."""
        return self._over and not self._left and self.failure is not None and self.failure.nothing_was_begun

    def leave(self, linger_s: float = 0.0) -> None:
        """Nobody reads on. With `linger_s` the answer is complete: the worker is free, and its connection has that long to
        come to its own end, so that it can be used again."""
        self._left = True
        self._stop_timer()
        self.take()
        if self._task.done():
            self._slot.release()
            return
        if linger_s:
            self._slot.release()
            self._loop.call_later(linger_s, self._task.cancel)
        elif self._end_wait_s:
            self._loop.call_later(self._end_wait_s, self._task.cancel)
        else:
            self._task.cancel()

    async def _read(self) -> None:
        try:
            async for event in self._events:
                if self._left:
                    continue
                self._ready.append(event)
                self._bytes += _EVENT_BYTES
                if isinstance(event, Chunk) and event.payload is not None:
                    self._bytes += len(event.payload)
                if self._wanted is not None:
                    self._settle(True)
                if self._bytes >= BUFFER_BYTES:
                    self._room = self._loop.create_future()
                    await self._room
        except WorkerFailure as failure:
            self.failure = self.failure or failure
        except Exception as error:
            # A bug of ours in a transport. The request fails; the log says where.
            _log.exception("transport_failed", error=type(error).__name__)
            self.failure = WorkerFailure(FAILURE_REASON_UPSTREAM, "the gateway could not read the worker's answer")
        finally:
            close = getattr(self._events, "aclose", None)
            if close is not None:
                await close()

    def _finished(self, _task: object) -> None:
        self._over = True
        self._stop_timer()
        if not self.keeps_slot:
            self._slot.release()
        self._settle(True)

    def _set_timer(self) -> None:
        self._stop_timer()
        self._due = self._until
        self._timer = self._loop.call_at(self._due, self._look)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """The timer is due."""
        self._timer = None
        if self._wanted is None:
            # Nobody waits just now; the next wait sets it again.
            return
        if self._until > self._due:
            self._set_timer()
        else:
            self._settle(False)

    def _settle(self, ready: bool) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(ready)
