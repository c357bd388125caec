"""Pumps the frames of one dispatched request to its client, and says how it ended. `inference.py` imports it.

Invariants: nothing is written before the first content (or, for a stream, before `heartbeat_s` have passed); payloads reach
the client in order and byte for byte; frames are read no faster than the client takes them, so that a slow reader slows its
own worker and nobody else's; a client that leaves is dealt with at once by the table in `departure.py`. Money is not
touched here: the outcome says what is to be charged, and `inference.py` does it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
from speedinfer.billing.v1.reservation_pb2 import ENDING_CLIENT_LEFT, ENDING_COMPLETED, ENDING_DEADLINE, Ending
from speedinfer.common.v1.operation_pb2 import OPERATION_EMBEDDING
from speedinfer.common.v1.usage_pb2 import Usage
from speedinfer.router.v1.frame_pb2 import FAILURE_REASON_TIMEOUT, Accepted, Data, End, Failure, Frame

from services.common.settings import EdgeLimits
from services.common.tasks import TaskSet
from services.edge import client_headers, departure, dispatch_item, settlement, sse
from services.edge.admission import Admitted
from services.edge.client import Client
from services.edge.departure import Event, Verdict
from services.edge.metrics import Metrics
from services.edge.openai_errors import (
    INTERNAL,
    ROUTER_FULL,
    ROUTER_LOST,
    ROUTER_UNAVAILABLE,
    TOTAL_DEADLINE,
    USAGE_MISSING,
    Problem,
    from_failure,
)
from services.edge.orphans import Orphans
from services.edge.router_lost import Lost
from services.edge.router_pool import RouterPool

CLIENT_LEFT = "client_left"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a dispatched request ended. With usage it is charged, without it is released."""

    usage: Usage | None = None
    ending: Ending.ValueType = ENDING_COMPLETED
    usage_frame: bytes = b""
    body: bytes = b""
    # What the client is told, if it is still there.
    problem: Problem | None = None
    # Why the hold is given back.
    cause: str = ""


class AnswerStream:
    """One dispatched request."""

    def __init__(
        self,
        admitted: Admitted,
        client: Client,
        routers: RouterPool,
        orphans: Orphans,
        metrics: Metrics,
        tasks: TaskSet,
        limits: EdgeLimits,
    ) -> None:
        # Without the prompt, which is not needed once it was handed over.
        self.admitted = admitted.without_prompt()
        self._client = client
        self._orphans = orphans
        self._metrics = metrics
        self._tasks = tasks
        self._limits = limits
        self._stream = admitted.request.stream
        self._loop = asyncio.get_running_loop()
        item = dispatch_item.make(admitted, admitted.deadline_s - self._loop.time())
        self._call = routers.generate(admitted.router, item)
        self.worker_id = ""
        self.attempts = 0
        self.content_sent = False
        # Frames go out as they come; before, they are held back for want of content.
        self._flowing = False
        self._ignored = ""
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._body = b""
        self._so_far: Usage | None = None
        self._orphan = False
        self._dropped: Outcome | None = None
        self._ended = False
        self._last_write_s = admitted.arrival.started_s
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> Outcome:
        """Read to the end, or to the client's."""
        if self._stream:
            self._arm()
        self._client.on_leave(self._left)
        try:
            return await self._pump()
        finally:
            self._ended = True
            self._client.on_leave(None)
            if self._timer is not None:
                self._timer.cancel()
            if self._orphan:
                self._orphans.remove(self.admitted.caller.key_id)
                self._metrics.orphans.dec()

    async def close(self) -> None:
        """Give the call up, if it has not ended by itself."""
        await self._call.close()

    def cut(self, problem: Problem) -> None:
        """End the request because the gateway must: nothing is charged."""
        if self._orphan:
            self._metrics.unmetered.inc()
        self._drop(Outcome(problem=problem, cause=problem.cause))

    async def open(self) -> None:
        """Send status and headers, if they are not out."""
        if not self._client.begun:
            headers = {"content-type": sse.CONTENT_TYPE, "cache-control": "no-cache", "x-accel-buffering": "no"}
            await self._client.begin(200, headers | self.headers())

    async def flush(self) -> None:
        """Send what was held back for want of content."""
        await self.open()
        held, self._held = self._held, []
        if held:
            await self._client.write(sse.encode(held))

    def headers(self) -> dict[str, str]:
        """The headers that tell of the worker and the key's limits."""
        headers = dict(self.admitted.headers)
        if self.worker_id:
            headers["x-speedinfer-worker"] = self.worker_id
        if self._ignored:
            headers["x-speedinfer-ignored-fields"] = self._ignored
        return headers

    async def _pump(self) -> Outcome:
        try:
            while frames := await self._call.take():
                outcome = await self._take_all(frames)
                # A frame keeps the whole message that it came in, with other requests' frames.
                del frames
                if self._dropped is not None:
                    return self._dropped
                if outcome is not None:
                    return outcome
            return self._dropped or self._failed(Event.WORKER_FAILED, ROUTER_LOST)
        except Lost as lost:
            return self._dropped or self._lost(lost.code)

    async def _take_all(self, frames: Sequence[Frame]) -> Outcome | None:
        """What came together; the data among it is written together."""
        outcome = None
        for frame in frames:
            if self._flowing and frame.HasField("data"):
                if not self._client.gone:
                    self._note_content(frame.data)
                    self._held += frame.data.payloads
                continue
            outcome = await self._take(frame)
            if outcome is not None or self._dropped is not None:
                break
        if self._flowing and self._held and self._dropped is None:
            await self._write_held()
        return outcome

    async def _write_held(self) -> None:
        held, self._held = self._held, []
        await self._client.write(sse.encode(held))
        self._last_write_s = self._loop.time()

    async def _take(self, frame: Frame) -> Outcome | None:
        kind = frame.WhichOneof("frame")
        if kind == "data":
            await self._data(frame.data)
        elif kind == "usage":
            self._usage(frame.usage.usage)
        elif kind == "accepted":
            self._accepted(frame.accepted)
        elif kind == "end":
            return self._end(frame.end)
        elif kind == "failure":
            return self._failure(frame.failure)
        return None

    def _accepted(self, accepted: Accepted) -> None:
        self.worker_id, self.attempts = accepted.worker_id, accepted.attempt
        # What a worker before it reported is superseded, and never charged.
        self._so_far = None
        self._ignored = client_headers.listed(accepted.ignored_fields)

    async def _data(self, data: Data) -> None:
        if not self._stream:
            self._body = data.payloads[0] if data.payloads else b""
            return
        if self._client.gone:
            return
        self._held += data.payloads
        self._held_bytes += sum(map(len, data.payloads))
        if not data.has_content and self._held_bytes <= self._limits.buffer_bytes:
            return
        # From here on data is written as it comes (`_take_all`).
        self._flowing = True
        await self.open()
        self._note_content(data)
        await self.flush()
        self._last_write_s = self._loop.time()

    def _note_content(self, data: Data) -> None:
        """Frames without content may be out already; only content makes a client that leaves pay."""
        if data.has_content and not self.content_sent and not self._client.gone:
            self.content_sent = True
            self._metrics.first_token_seconds.observe(self._loop.time() - self.admitted.arrival.started_s)

    def _usage(self, usage: Usage) -> None:
        self._so_far = usage
        if departure.is_known(usage):
            self._orphans.learned(self.worker_id)
            if self._orphan:
                self._drop(self._charge_so_far(ENDING_CLIENT_LEFT))

    def _end(self, end: End) -> Outcome:
        embedding = self.admitted.request.operation == OPERATION_EMBEDDING
        if not settlement.is_complete(end.usage, with_completion=not embedding):
            return self._failed(Event.WORKER_FAILED, USAGE_MISSING)
        ending = ENDING_CLIENT_LEFT if self._orphan else ENDING_COMPLETED
        return Outcome(usage=end.usage, ending=ending, usage_frame=end.usage_frame, body=self._body)

    def _failure(self, failure: Failure) -> Outcome:
        self.worker_id = failure.worker_id or self.worker_id
        self.attempts = failure.attempts or self.attempts
        total = failure.reason == FAILURE_REASON_TIMEOUT and failure.deadline == "total"
        return self._failed(Event.TOTAL_DEADLINE if total else Event.WORKER_FAILED, from_failure(failure))

    def _lost(self, code: grpc.StatusCode) -> Outcome:
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            return self._failed(Event.TOTAL_DEADLINE, TOTAL_DEADLINE)
        if code == grpc.StatusCode.INVALID_ARGUMENT:
            return self._failed(Event.WORKER_FAILED, INTERNAL)
        if self.worker_id:
            return self._failed(Event.WORKER_FAILED, ROUTER_LOST)
        full = code == grpc.StatusCode.RESOURCE_EXHAUSTED
        return self._failed(Event.WORKER_FAILED, ROUTER_FULL if full else ROUTER_UNAVAILABLE)

    def _failed(self, event: Event, problem: Problem) -> Outcome:
        known = departure.is_known(self._so_far)
        verdict = departure.decide(event, content_sent=self.content_sent, usage_known=known)
        if verdict is Verdict.CHARGE_SO_FAR:
            return self._charge_so_far(ENDING_DEADLINE, problem)
        if self._orphan or verdict is Verdict.RELEASE_UNMETERED:
            self._metrics.unmetered.inc()
        return Outcome(problem=problem, cause=problem.cause)

    def _charge_so_far(self, ending: Ending.ValueType, problem: Problem | None = None) -> Outcome:
        assert self._so_far is not None
        if not settlement.is_complete(self._so_far, with_completion=True):
            return Outcome(problem=problem or USAGE_MISSING, cause=USAGE_MISSING.cause)
        return Outcome(usage=self._so_far, ending=ending, problem=problem)

    def _left(self) -> None:
        """The client is gone; called from wherever that was seen."""
        if self._ended:
            return
        known = departure.is_known(self._so_far)
        verdict = departure.decide(Event.CLIENT_LEFT, content_sent=self.content_sent, usage_known=known)
        self._metrics.left.labels(verdict.name.lower()).inc()
        if verdict is Verdict.READ_ON:
            self._orphan = True
            # Whatever its other streams did, this one has not counted yet.
            self._orphans.add(self.admitted.caller.key_id, self.worker_id)
            self._metrics.orphans.inc()
        elif verdict is Verdict.CHARGE_SO_FAR:
            self._drop(self._charge_so_far(ENDING_CLIENT_LEFT))
        else:
            self._drop(Outcome(cause=CLIENT_LEFT))

    def _drop(self, outcome: Outcome) -> None:
        if self._dropped is None and not self._ended:
            self._dropped = outcome
            self._call.cancel()

    def _arm(self) -> None:
        wait_s = self._last_write_s + self._limits.heartbeat_s - self._loop.time()
        self._timer = self._loop.call_later(max(wait_s, 0.001), self._tick)

    def _tick(self) -> None:
        # Re-armed only here, so that an event costs no timer.
        if self._loop.time() - self._last_write_s < self._limits.heartbeat_s:
            self._arm()
        else:
            self._tasks.spawn(self._beat(), "keep-alive")

    async def _beat(self) -> None:
        if self._ended or self._client.gone:
            return
        await self.open()
        await self._client.write(sse.KEEP_ALIVE)
        self._last_write_s = self._loop.time()
        if not self._ended:
            self._arm()
