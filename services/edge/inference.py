"""The three inference routes: one request from its body to its last byte. `app.py` imports it.

The work runs in a task of its own, which the end of the connection does not cancel: a hold that was made is settled or
released on every path, exactly once. The HTTP handler only waits for it, and tells it when the client has left.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web
from speedinfer.billing.v1.reservation_pb2 import ReleaseItem
from speedinfer.common.v1.context_pb2 import RequestContext
from speedinfer.router.v1.frame_pb2 import Failure, FailureReason

from services.common.settings import EdgeLimits
from services.common.tasks import TaskSet
from services.edge import client_headers, json_object, settlement, sse, usage_frame
from services.edge.admission import Admission, Admitted
from services.edge.answer_stream import CLIENT_LEFT, AnswerStream, Outcome
from services.edge.arrival import ARRIVAL, Arrival
from services.edge.body import read_json
from services.edge.body_reader import Check
from services.edge.body_room import BodyClaim, BodyRoom
from services.edge.client import Client
from services.edge.metrics import Metrics
from services.edge.openai_errors import DRAINING, INTERNAL, Problem, Refused, for_event, from_failure
from services.edge.openai_request import UsageWish
from services.edge.orphans import Orphans
from services.edge.router_pool import RouterPool
from services.edge.settler import Receipt, Settler

_log = structlog.get_logger(__name__)
_UNREADABLE = from_failure(Failure(reason=FailureReason.FAILURE_REASON_INVALID_RESPONSE))
# nginx's status for a client that closed the connection; nobody is there to see it.
_CLIENT_CLOSED = 499
# Of the room for bodies one key has at most the fourth part, or that of a single body.
_SHARE_OF_A_KEY = 4


class Inference:
    """Serves inference requests."""

    def __init__(
        self,
        admission: Admission,
        routers: RouterPool,
        settler: Settler,
        orphans: Orphans,
        metrics: Metrics,
        tasks: TaskSet,
        limits: EdgeLimits,
    ) -> None:
        self._admission = admission
        self._routers = routers
        self._settler = settler
        self._orphans = orphans
        self._metrics = metrics
        self._tasks = tasks
        self._limits = limits
        share_bytes = max(limits.max_bodies_bytes // _SHARE_OF_A_KEY, limits.max_body_bytes)
        self._room = BodyRoom(limits.max_bodies_bytes, share_bytes)
        self._streams: set[AnswerStream] = set()
        self._jobs = TaskSet()

    def handler(self, check: Check) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """The HTTP handler of one operation."""

        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._handle(request, check)

        return handle

    @property
    def running(self) -> int:
        """How many requests run, with those whose clients have left."""
        return len(self._jobs)

    async def drain(self, timeout_s: float, last_words_s: float) -> None:
        """Wait for what runs; what still does after `timeout_s` is told so and ended."""
        self._admission.draining = True
        if await self._jobs.join(timeout_s):
            return
        _log.warning("drain_cuts_streams", count=len(self._streams))
        for stream in list(self._streams):
            stream.cut(DRAINING)
        await self._jobs.join(last_words_s)
        await self._jobs.cancel()

    async def _handle(self, request: web.Request, check: Check) -> web.StreamResponse:
        arrival = request[ARRIVAL]
        credential = client_headers.bearer(request.headers)
        claim = await self._claim(request, credential)
        try:
            body = await read_json(request, self._limits.max_body_bytes, self._limits.body_timeout_s, claim)
        except BaseException:
            claim.release()
            raise
        # Whoever is still being written to at the total deadline has a little longer for what is under way.
        client = Client(request, arrival.started_s + self._limits.request_timeout_s + self._limits.reader_stall_s)
        idempotency_key = request.headers.get("idempotency-key", "")
        work = self._serve(arrival, client, credential, idempotency_key, body, claim, check)
        # The bytes may be many and the stream long: only the parsed request outlives admission.
        del body
        job = self._jobs.spawn(work, "inference")
        try:
            refused = await asyncio.shield(job)
        except asyncio.CancelledError:
            client.left()
            raise
        client.finished = True
        if client.response is not None:
            return client.response
        if refused is not None and not client.gone:
            raise refused
        return web.Response(status=_CLIENT_CLOSED)

    async def _claim(self, request: web.Request, credential: str) -> BodyClaim:
        """Room for the body of somebody who is known. Refused (401), and before that for whatever is wrong with the body."""
        try:
            caller = await self._admission.authorise(credential)
        except Refused:
            await read_json(request, self._limits.max_body_bytes, self._limits.body_timeout_s, None)
            raise
        return self._room.claim(caller.key_id)

    async def _serve(
        self,
        arrival: Arrival,
        client: Client,
        credential: str,
        idempotency_key: str,
        body: bytes,
        claim: BodyClaim,
        check: Check,
    ) -> Refused | None:
        """Serve a request; what it answers is for the handler to raise, since nothing was sent yet."""
        self._admission.open += 1
        self._metrics.open_requests.inc()
        try:
            try:
                admitted = await self._admission.admit(arrival, client, credential, idempotency_key, body, check)
            finally:
                del body
                claim.release()
            work = self._dispatch(admitted, client)
            # As the body: `_dispatch` keeps no more of it than it needs.
            del admitted
            return await work
        except Refused as refused:
            return refused
        finally:
            self._admission.open -= 1
            self._metrics.open_requests.dec()

    async def _dispatch(self, admitted: Admitted, client: Client) -> Refused | None:
        closing = _Closing(self._settler, admitted.arrival)
        answer: AnswerStream | None = None
        try:
            if client.gone:
                await closing.release(CLIENT_LEFT, 0)
                return None
            answer = AnswerStream(
                admitted, client, self._routers, self._orphans, self._metrics, self._tasks, self._limits
            )
            admitted = answer.admitted
            self._streams.add(answer)
            outcome = await answer.run()
            admitted.arrival.worker_id = answer.worker_id
            problem = await self._finish(admitted, client, answer, outcome, closing)
            return Refused(problem, answer.headers()) if problem is not None else None
        except Exception as error:
            _log.exception("request_failed", request_id=admitted.arrival.request_id, error=type(error).__name__)
            if client.begun:
                await client.end(for_event(INTERNAL))
            return Refused(INTERNAL)
        finally:
            if not closing.done:
                await closing.release(INTERNAL.cause, 0, answer)
            if admitted.place is not None:
                admitted.place.close()
            if answer is not None:
                self._streams.discard(answer)
                await answer.close()

    async def _finish(
        self, admitted: Admitted, client: Client, answer: AnswerStream, outcome: Outcome, closing: "_Closing"
    ) -> Problem | None:
        """Money first, then the client's last bytes. Answers the problem if nothing was sent yet."""
        streamed = admitted.request.stream
        if outcome.usage is not None and not streamed and not _is_object(outcome.body):
            outcome = Outcome(problem=_UNREADABLE, cause=_UNREADABLE.cause)
        problem, receipt = outcome.problem, Receipt()
        if outcome.usage is None:
            await closing.release(outcome.cause, 0 if client.gone else self._limits.settle_wait_s, answer)
        elif client.gone and not answer.content_sent:
            await closing.release(CLIENT_LEFT, 0, answer)
        else:
            receipt = await closing.settle(answer, outcome)
            problem = problem or receipt.problem
        if problem is not None:
            admitted.arrival.code = problem.cause
        if client.gone:
            return None
        if problem is not None:
            if not client.begun:
                return problem
            await client.end(for_event(problem))
        elif streamed:
            await answer.flush()
            await client.end(self._last_events(admitted, outcome, receipt))
        else:
            assert outcome.usage is not None
            whole = usage_frame.whole_answer(outcome.body, outcome.usage, receipt.charge_nanos)
            await client.answer(200, {"content-type": "application/json"} | answer.headers(), whole)
        return None

    def _last_events(self, admitted: Admitted, outcome: Outcome, receipt: Receipt) -> bytes:
        request, wish = admitted.request, admitted.request.usage_wish
        assert outcome.usage is not None
        if wish is UsageWish.NOT_WANTED:
            return sse.DONE
        frame = outcome.usage_frame
        if not _is_object(frame):
            frame = usage_frame.bare_frame(
                admitted.arrival.request_id, request.model, int(time.time()), request.operation
            )
        asked = wish is UsageWish.WANTED
        last = usage_frame.client_frame(frame, outcome.usage, receipt.charge_nanos, request.operation, asked=asked)
        return sse.encode([last]) + sse.DONE


class _Closing:
    """The end of one hold: settled or released, once."""

    def __init__(self, settler: Settler, arrival: Arrival) -> None:
        self._settler = settler
        self._arrival = arrival
        self.done = False

    async def settle(self, answer: AnswerStream, outcome: Outcome) -> Receipt:
        assert outcome.usage is not None
        assert not self.done
        self.done = True
        arrival = self._arrival
        arrival.prompt_tokens = outcome.usage.prompt_tokens
        arrival.completion_tokens = outcome.usage.completion_tokens
        return await self._settler.settle(
            settlement.make(
                arrival.request_id,
                outcome.usage,
                answer.worker_id,
                answer.attempts,
                outcome.ending,
                arrival.traceparent,
            )
        )

    async def release(self, cause: str, wait_s: float, answer: AnswerStream | None = None) -> None:
        assert not self.done
        self.done = True
        arrival = self._arrival
        context = RequestContext(request_id=arrival.request_id, traceparent=arrival.traceparent)
        item = ReleaseItem(
            context=context,
            reservation_id=arrival.request_id,
            cause=cause,
            worker_id=answer.worker_id if answer is not None else "",
            attempts=answer.attempts if answer is not None else 0,
        )
        await self._settler.release(item, wait_s)


def _is_object(text: bytes) -> bool:
    try:
        json_object.members_of(text)
    except ValueError:
        return False
    return True
