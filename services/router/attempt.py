"""One dispatch of a request to one worker: what came of it so far, and which deadline runs. Only `dispatch.py` uses it.

Pure but for the worker's own counters: time comes in, frames go out. Payloads are held back until the first content, so that
another worker may still take the request over; after that nothing is ever held.
"""

from typing import NamedTuple

from speedinfer.router.v1 import frame_pb2
from speedinfer.router.v1.frame_pb2 import FAILURE_REASON_USAGE_MISSING

from services.router.answer import Answer, Complete, Incomplete
from services.router.breaker import Event as CircuitEvent
from services.router.transport.port import Accepted, Chunk, Dispatch, Done, Event, WorkerFailure
from services.router.usage import Usage
from services.router.worker import Slot

# Role-only frames are small; whoever sends more than this before any content is relayed as it comes.
HELD_BYTES = 64 * 1024
# After the worker said that it was over, usage may still be on its way; and a complete answer may still be closed properly.
GRACE_S = 0.25


class Limit(NamedTuple):
    """When the waiting ends, by the loop's clock, and what that means."""

    at: float
    # `first token`, `idle`, `total`, or `grace`: then the answer is judged as it is.
    deadline: str
    # How long the deadline is, for its message.
    seconds: float


class Attempt:
    """The state of one dispatch."""

    def __init__(self, slot: Slot, dispatch: Dispatch, started: float, total_at: float, total_s: float) -> None:
        self.worker = slot.worker
        self.slot = slot
        self._dispatch = dispatch
        config = slot.worker.registration.config
        self._idle_s, self._first_token_s = config.idle_timeout_s, config.first_token_timeout_s
        self._first_token_at = started + self._first_token_s
        self.total = Limit(total_at, "total", total_s)
        self._answer = Answer(dispatch.operation, dispatch.stream, dispatch.choices)
        self._held: list[bytes] = []
        self._held_bytes = 0
        # A payload went out: no other worker may take over.
        self.committed = False
        self._content = False
        # The usage so far that the caller was told last, and whether counts have come since.
        self._told: Usage | None = None
        self._has_news = False
        self._done_at: float | None = None
        # Since when nothing is missing; whatever else comes, nobody waits for it longer than a little.
        self._complete_at: float | None = None
        self._judged = False

    def limit(self, now: float) -> Limit:
        """The first deadline, if the worker is waited for from now on."""
        if self._done_at is not None:
            return Limit(self._done_at + GRACE_S, "grace", GRACE_S)
        if self._complete_at is not None:
            return Limit(self._complete_at + GRACE_S, "grace", GRACE_S)
        if not self._dispatch.stream:
            return self.total
        if self._content:
            at, deadline, seconds = now + self._idle_s, "idle", self._idle_s
        else:
            at, deadline, seconds = self._first_token_at, "first token", self._first_token_s
        return Limit(at, deadline, seconds) if at < self.total.at else self.total

    def no_token_by(self, now: float) -> Limit | None:
        """The first-token deadline, if it is over. Bytes keep the idle deadline off; this one waits for a token."""
        if self._content:
            return None
        limit = self.limit(now)
        return limit if limit.deadline == "first token" and now >= limit.at and not self.may_stand else None

    @property
    def is_over(self) -> bool:
        """The worker said so, and nothing is missing."""
        return self._done_at is not None and self._answer.is_complete

    def take(self, events: list[Event], now: float) -> list[frame_pb2.Frame]:
        """The frames that a batch of events makes."""
        frames: list[frame_pb2.Frame] = []
        payloads: list[bytes] = []
        content = False
        for event in events:
            if self._done_at is not None and self.is_over:
                # Whether more came in the same batch is chance: it must not change what is read or charged.
                break
            if isinstance(event, Chunk):
                if self._done_at is not None:
                    # After the end only usage counts.
                    event = event._replace(payload=None, content=False, finished={})
                self._answer.take(event)
                self._has_news |= event.usage is not None
                content |= event.content
                if event.payload is not None:
                    payloads.append(event.payload)
            elif isinstance(event, Done):
                if self._done_at is None:
                    self._done_at = now
            elif isinstance(event, Accepted):
                frames.append(self._accepted(event))
        if not self._answer.is_complete:
            self._complete_at = None
        elif self._complete_at is None:
            self._complete_at = now
        if content and not self._content:
            self._content = True
            self._record(CircuitEvent.SUCCEEDED, now)
        data = self._relay(payloads, content) if payloads else None
        # Counts go before the data that they cover: whoever leaves at that data has been told what it cost.
        if self._has_news and (news := self._usage_so_far()) is not None:
            frames.append(news)
        if data is not None:
            frames.append(data)
        return frames

    def _accepted(self, event: Accepted) -> frame_pb2.Frame:
        accepted = frame_pb2.Accepted(
            worker_id=self.worker.worker_id,
            attempt=self._dispatch.attempt,
            transport=self.worker.registration.config.transport,
            ignored_fields=event.ignored_fields,
        )
        return frame_pb2.Frame(accepted=accepted)

    def finish(self, now: float) -> list[frame_pb2.Frame]:
        """The last frames of an answer to which nothing more will come. WorkerFailure if it does not count."""
        verdict = self._answer.finish()
        if isinstance(verdict, Complete):
            self._record(CircuitEvent.SUCCEEDED, now)
            self.worker.record_usage(True)
            frames = [_data(self._held, self._content and not self.committed)] if self._held else []
            self._held = []
            self.committed = True
            end = frame_pb2.End(usage=verdict.usage.message(), usage_frame=verdict.usage_frame)
            return [*frames, frame_pb2.Frame(end=end)]
        raise self._refuse(verdict, now)

    @property
    def inconsistencies(self) -> tuple[str, ...]:
        """What is wrong with the counts of an answer that counts nevertheless."""
        return self._answer.inconsistencies(content=self._content)

    @property
    def may_stand(self) -> bool:
        """Whether the answer is complete as it is, although its worker broke off or fell silent."""
        return self._answer.may_stand

    def failed(self, failure: WorkerFailure, now: float) -> None:
        """The worker, or the way to it, failed the request."""
        self._record(CircuitEvent.FAILED if failure.counts_against_worker else CircuitEvent.UNDECIDED, now)

    def left(self, now: float) -> None:
        """It is over, one way or the other: a circuit that waits for this request's outcome need not any longer."""
        if not self._judged:
            self._record(CircuitEvent.UNDECIDED, now)

    def _usage_so_far(self) -> frame_pb2.Frame | None:
        """What the caller must be told of usage. Only of an attempt that it gets data of: another may still be superseded."""
        if not self.committed or not self._dispatch.stream:
            return None
        self._has_news = False
        counts = self._answer.usage_so_far
        if counts == self._told:
            return None
        self._told = counts
        # An empty one takes back what was told: the worker's last word was no count.
        return frame_pb2.Frame(usage=frame_pb2.UsageSoFar(usage=(counts or Usage()).message()))

    def _relay(self, payloads: list[bytes], content: bool) -> frame_pb2.Frame | None:
        if self.committed:
            return _data(payloads, content)
        self._held += payloads
        self._held_bytes += sum(map(len, payloads))
        # A whole answer is one payload, and goes out only if it counts.
        if self._dispatch.stream and (content or self._held_bytes > HELD_BYTES):
            self.committed = True
            held, self._held = self._held, []
            return _data(held, content)
        return None

    def _refuse(self, verdict: Incomplete, now: float) -> WorkerFailure:
        if verdict.reason == FAILURE_REASON_USAGE_MISSING:
            # The worker did its work, and another try would be another generation.
            self._record(CircuitEvent.SUCCEEDED, now)
            self.worker.record_usage(False)
            return WorkerFailure(verdict.reason, verdict.message, try_another=False, counts_against_worker=False)
        return WorkerFailure(verdict.reason, verdict.message)

    def _record(self, event: CircuitEvent, now: float) -> None:
        self._judged = True
        self.slot.record(event, now)


def _data(payloads: list[bytes], content: bool) -> frame_pb2.Frame:
    return frame_pb2.Frame(data=frame_pb2.Data(payloads=payloads, has_content=content))
