"""The way of one request: pick a worker, send it, relay the answer, try another where that is still possible.

Invariants: exactly one `end` or `failure` frame, last; no second worker once a payload went out; at most `max_attempts`
workers, each a different one (which may get the request once more where nothing was generated), inside the request's
deadline. The inference servicer uses it; it knows nothing of gRPC.
"""

import asyncio
from random import Random

import structlog
from speedinfer.router.v1 import frame_pb2, inference_pb2
from speedinfer.router.v1.frame_pb2 import FAILURE_REASON_REJECTED, FailureReason

from services.common.settings import RouterLimits
from services.common.tasks import TaskSet
from services.router import failure as failures
from services.router.attempt import GRACE_S, Attempt
from services.router.counting import Counting
from services.router.metrics import Metrics
from services.router.pick import Need, NotPicked
from services.router.places import Places
from services.router.reading import Reading
from services.router.registry import Registry
from services.router.retry_budget import RetryBudget
from services.router.transport.port import CONTEXT_LENGTH, Dispatch, WorkerFailure
from services.router.worker import Slot, Worker

_log = structlog.get_logger(__name__)


class Dispatcher:
    """Runs requests; knows those that run."""

    def __init__(
        self,
        registry: Registry,
        places: Places,
        counting: Counting,
        limits: RouterLimits,
        metrics: Metrics,
        chance: Random,
    ) -> None:
        self.registry = registry
        self.places = places
        self.counting = counting
        self.retries = RetryBudget(limits.retry_share, limits.retry_burst)
        self.limits = limits
        self.metrics = metrics
        self.chance = chance
        # Readings may outlive their requests: some workers cannot be stopped.
        self.readings = TaskSet()
        self.draining = False
        self._running: set[Request] = set()
        self._none_runs = asyncio.Event()
        self._none_runs.set()

    def start(self, item: inference_pb2.GenerateItem) -> "Request":
        """A request; its frames come from `next_frames()`, and `leave()` must be called at last."""
        return Request(self, item)

    def began(self, request: "Request") -> None:
        """Only Request calls this."""
        self._running.add(request)
        self._none_runs.clear()

    def ended(self, request: "Request") -> None:
        """Only Request calls this; a second time does nothing."""
        self._running.discard(request)
        if not self._running:
            self._none_runs.set()

    async def drain(self, timeout_s: float) -> None:
        """Take nothing new; wait for what runs, then end it with a failure."""
        self.draining = True
        self.places.refuse_all(failures.draining())
        try:
            async with asyncio.timeout(timeout_s):
                await self._none_runs.wait()
        except TimeoutError:
            for request in list(self._running):
                request.break_off()
        await self.readings.cancel()


class Request:
    """One request and its attempts. Pulled from: the next frames are made when the caller asks for them."""

    def __init__(self, dispatcher: Dispatcher, item: inference_pb2.GenerateItem) -> None:
        self._dispatcher = dispatcher
        self._item = item
        self._loop = asyncio.get_running_loop()
        self._arrived = self._loop.time()
        self._needs = [Need(each.feature, each.param) for each in item.requirements]
        self._members = [(member.name, member.json) for member in item.members]
        # The worker at hand said that the bound which the gateway put in does not fit into its context.
        self._without_limit = False
        self._tried: list[str] = []
        # Every dispatch counts, one to the same worker again as well; and the caller may have made some of its own.
        self._attempts = max(item.context.attempt, 1) - 1
        self._attempt: Attempt | None = None
        self._reading: Reading | None = None
        self._failure: WorkerFailure | None = None
        self._on_fresh_connection = False
        self._over = False
        dispatcher.retries.earn()
        dispatcher.began(self)

    async def next_frames(self) -> list[frame_pb2.Frame]:
        """What the caller gets next, as much as became ready at once; empty when all was given."""
        while not self._over:
            if self._attempt is None and not self._begin():
                return self._end_with_failure()
            try:
                frames = await self._step()
            except WorkerFailure as failure:
                if self._failed(failure):
                    return self._end_with_failure()
                continue
            if frames:
                return frames
        return []

    def leave(self) -> None:
        """Nobody waits for more: a worker that still runs is dropped. To be called however it ended; twice does no harm."""
        if not self._over:
            self._conclude("left")

    def break_off(self) -> None:
        """The router cannot wait for this any longer."""
        if self._reading is not None:
            self._reading.break_off(failures.draining())

    def _begin(self) -> bool:
        """Give the request to a worker that it was not given to before. False if there is none, or no attempt is left."""
        dispatcher = self._dispatcher
        if len(self._tried) >= dispatcher.limits.max_attempts:
            return False
        if dispatcher.draining:
            self._failure = self._failure or failures.draining()
            return False
        now = self._loop.time()
        place = dispatcher.places.use(self._item.place_request_id or self._item.context.request_id)
        if place is not None:
            if place.worker.is_serving and place.worker.rests_until(now) is None:
                self._tried.append(place.worker.worker_id)
                self._send(place.slot)
                return True
            place.give_back()
        elif (granted := self._granted_elsewhere(now)) is not None:
            self._tried.append(granted.worker_id)
            self._send(granted.take(now))
            return True
        picked = dispatcher.registry.pick(self._item.model, self._needs, self._tried, now, dispatcher.chance)
        if isinstance(picked, NotPicked):
            # What the first worker said is more than that there is no second.
            self._failure = self._failure or failures.not_picked(picked, self._item.model)
            return False
        if self._tried and now >= self._deadline(picked.worker)[0]:
            return False
        if self._tried and not dispatcher.retries.spend():
            dispatcher.metrics.retries_refused.inc()
            return False
        self._tried.append(picked.worker.worker_id)
        self._on_fresh_connection = self._without_limit = False
        self._send(picked.worker.take(now))
        return True

    def _granted_elsewhere(self, now: float) -> Worker | None:
        """The worker of a place that another router gave, which this one succeeded: the request is not refused for want of
        room, though the worker may so have one too many."""
        worker_id = self._item.place_worker_id
        if not worker_id or self._tried:
            return None
        worker = self._dispatcher.registry.get(worker_id)
        if worker is None or not worker.is_serving or worker.rests_until(now) is not None:
            return None
        return worker if self._item.model in worker.registration.supported_models else None

    def _send(self, slot: Slot) -> None:
        self._attempts += 1
        dispatch = self._dispatch()
        self._attempt = Attempt(slot, dispatch, self._loop.time(), *self._deadline(slot.worker))
        transport = slot.worker.transport
        self._reading = Reading(
            transport.generate(dispatch), slot, self._dispatcher.readings, end_wait_s=transport.end_wait_s
        )

    async def _step(self) -> list[frame_pb2.Frame]:
        """The frames of what became ready, at most one wait away. WorkerFailure if the attempt failed."""
        attempt, reading = self._attempt, self._reading
        assert attempt is not None, "a request steps while an attempt runs"
        assert reading is not None, "an attempt is read"
        if not reading.ended and not attempt.is_over:
            now = self._loop.time()
            limit = attempt.limit(now)
            if limit.deadline == "grace":
                # A worker that goes on sending what nobody needs would never let us wait so long.
                if now >= limit.at:
                    return self._finish(attempt)
            elif now >= attempt.total.at:
                # A caller that reads slowly may never let us wait for the worker: the total deadline holds all the same.
                raise failures.timed_out(attempt.total.deadline, attempt.total.seconds)
            if await reading.wait(limit.at):
                now = self._loop.time()
                frames = attempt.take(reading.take(), now)
                if attempt.committed and self._members:
                    self._forget_prompt()
                if attempt.is_over:
                    return frames + self._finish(attempt)
                if late := attempt.no_token_by(now):
                    # A worker that goes on sending what is no token would never let us wait so long, either.
                    raise failures.timed_out(late.deadline, late.seconds)
                return frames
            if limit.deadline != "grace" and not attempt.may_stand:
                raise failures.timed_out(limit.deadline, limit.seconds)
        elif (
            reading.failure is not None
            and not attempt.is_over
            and not (reading.failure.connection_lost and attempt.may_stand)
        ):
            raise reading.failure
        return self._finish(attempt)

    def _forget_prompt(self) -> None:
        """No other worker gets it any more: what only a dispatch needs is not kept for as long as the stream takes."""
        kept = inference_pb2.GenerateItem(
            counted_by=self._item.counted_by, counted_prompt_tokens=self._item.counted_prompt_tokens
        )
        kept.context.CopyFrom(self._item.context)
        self._item = kept
        # The dispatch at hand has the same list.
        self._members.clear()

    def _finish(self, attempt: Attempt) -> list[frame_pb2.Frame]:
        frames = attempt.finish(self._loop.time())
        for kind in attempt.inconsistencies:
            self._note_inconsistent(attempt.worker, kind)
        item = self._item
        if item.counted_by:
            reported = frames[-1].end.usage.prompt_tokens
            self._dispatcher.counting.reported(
                item.counted_by, item.counted_prompt_tokens, reported, item.context.request_id
            )
        self._conclude("end", GRACE_S)
        return frames

    def _failed(self, failure: WorkerFailure) -> bool:
        """The attempt failed. True if that was the last word; else another attempt is due, or runs already."""
        attempt, reading = self._attempt, self._reading
        assert attempt is not None, "only an attempt fails"
        assert reading is not None, "an attempt is read"
        self._attempt = self._reading = None
        worker = attempt.worker
        if not attempt.committed and reading.keeps_slot and self._once_more(failure):
            # In its own slot, or it would be one more than the worker takes where others wait for what comes free.
            self._send(attempt.slot)
            return False
        reading.leave()
        attempt.failed(failure, self._loop.time())
        self._failure = failure
        self._note(worker, failure)
        return attempt.committed or not failure.try_another

    def _end_with_failure(self) -> list[frame_pb2.Frame]:
        assert self._failure is not None, "without a failure there is an end"
        self._conclude(FailureReason.Name(self._failure.reason).removeprefix("FAILURE_REASON_").lower())
        last = self._tried[-1] if self._tried else ""
        return [failures.frame(self._failure, last, self._attempts)]

    def _conclude(self, outcome: str, linger_s: float = 0.0) -> None:
        self._over = True
        if self._reading is not None:
            self._reading.leave(linger_s)
        if self._attempt is not None:
            self._attempt.left(self._loop.time())
        self._dispatcher.metrics.ended(outcome)
        self._dispatcher.ended(self)

    def _deadline(self, worker: Worker) -> tuple[float, float]:
        """When the total deadline ends by the loop's clock, and how long it is. It is the request's: another attempt has what
        is left of it."""
        total_s = worker.registration.config.total_timeout_s
        remaining_s = self._item.context.remaining_ms / 1000
        if 0 < remaining_s < total_s:
            total_s = remaining_s
        return self._arrived + total_s, total_s

    def _dispatch(self) -> Dispatch:
        item = self._item
        return Dispatch(
            request_id=item.context.request_id,
            attempt=self._attempts,
            operation=item.operation,
            model=item.model,
            stream=item.stream,
            members=self._members,
            output_limit=item.output_limit if item.HasField("output_limit") and not self._without_limit else None,
            choices=max(item.choices, 1),
            traceparent=item.context.traceparent,
            tracestate=item.context.tracestate,
            fresh_connection=self._on_fresh_connection,
        )

    def _once_more(self, failure: WorkerFailure) -> bool:
        """Whether the same worker gets the request a second time at once, because nothing was generated for it."""
        if failure.stale_connection and not self._on_fresh_connection:
            self._dispatcher.metrics.stale_connections.inc()
            self._on_fresh_connection = True
            return True
        if (
            failure.reason == FAILURE_REASON_REJECTED
            and failure.code == CONTEXT_LENGTH
            and self._item.output_limit_is_ours
            and self._item.HasField("output_limit")
            and not self._without_limit
        ):
            # What is left of this worker's context is below the bound, so that the hold covers an answer without it. Another
            # worker's may be larger: it gets the bound again.
            self._without_limit = True
            return True
        return False

    def _note_inconsistent(self, worker: Worker, kind: str) -> None:
        """The worker's counts are charged as they are; its operator has to know that they cannot be right."""
        self._dispatcher.metrics.usage_inconsistent.labels(worker.worker_id, kind).inc()
        _log.warning(
            "usage_inconsistent", request_id=self._item.context.request_id, worker_id=worker.worker_id, kind=kind
        )

    def _note(self, worker: Worker, failure: WorkerFailure) -> None:
        reason = FailureReason.Name(failure.reason)
        self._dispatcher.metrics.failed_attempts.labels(reason).inc()
        if failure.counts_against_worker:
            # A worker that is gone is better known soon.
            worker.attention.set()
        _log.info(
            "attempt_failed",
            request_id=self._item.context.request_id,
            worker_id=worker.worker_id,
            reason=reason,
            detail=failure.detail,
        )
