"""The single writer: takes what waits, applies it in order, commits it together, and only then answers.

There is no timer: a batch is whatever arrived while the last one was being written. The queue is bounded; a call that does
not fit is told so before anything was looked at. If a commit fails, nothing of the batch is acknowledged; a bug in one
operation costs that operation alone. Servicers and the sweep use it.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from google.protobuf.message import Message

from services.billing.books import Books
from services.billing.clock import Clock
from services.billing.lease import Leases
from services.billing.metrics import Metrics
from services.billing.operations.operation import Operation
from services.billing.store.port import Again, Names, Store, StoreError
from services.common.errors import ServiceError, Unavailable

_log = structlog.get_logger(__name__)

# How often a batch is done in all, where other processes are in its way.
ATTEMPTS = 5
# How often a process looks at what others opened and closed, and whether it is to sweep.
LOOK_EVERY_MS = 5_000

Answer = Message | Exception


@dataclass(frozen=True, slots=True, eq=False)
class _Ticket:
    """The items of one call, and who waits for them."""

    operations: Sequence[Operation]
    answers: "asyncio.Future[list[Answer]]"
    loop: asyncio.AbstractEventLoop


class Engine:
    """See above. `start` and `stop` frame its thread."""

    def __init__(
        self, store: Store, leases: Leases, clock: Clock, metrics: Metrics, *, max_queue: int, max_batch: int
    ) -> None:
        self._store = store
        self._leases = leases
        self._clock = clock
        self._metrics = metrics
        self._max_queue = max_queue
        self._max_batch = max_batch
        self._waiting: deque[_Ticket] = deque()
        self._waiting_items = 0
        self._changed = threading.Condition()
        self._stopping = False
        # The database failed: leases and connection must be made anew before the next batch.
        self._lost = False
        self._sweeps = False
        self._look_at_ms = 0
        self._thread = threading.Thread(target=self._run, name="billing-writer", daemon=True)

    @property
    def sweeps(self) -> bool:
        """Whether it is up to this process to let holds lapse, and to seal. Of several on one database one does."""
        return self._sweeps

    def start(self) -> None:
        """Take up the open holds, each with a full lease, and begin. StoreError if the store cannot be read."""
        self._take_up_leases()
        self._thread.start()

    async def stop(self) -> None:
        """Finish what waits, take nothing new."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    async def submit(self, operations: Sequence[Operation]) -> list[Any] | None:
        """The answers, each with its effect on disk; None if the queue is full and nothing was looked at.

        Raises StoreError where the database did not store the batch. The answers of a call share a commit."""
        if not operations:
            return []
        loop = asyncio.get_running_loop()
        ticket = _Ticket(operations, loop.create_future(), loop)
        with self._changed:
            if self._stopping:
                raise Unavailable("billing is shutting down")
            # A call is never larger than the queue's bound unless the queue is empty; then it is taken alone.
            if self._waiting and self._waiting_items + len(operations) > self._max_queue:
                self._metrics.refused_full.inc(len(operations))
                return None
            self._waiting.append(ticket)
            self._waiting_items += len(operations)
            self._metrics.queue_depth.set(self._waiting_items)
            self._changed.notify()
        answers = await ticket.answers
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def _run(self) -> None:
        while tickets := self._take():
            operations = [operation for ticket in tickets for operation in ticket.operations]
            with self._metrics.commit_seconds.time():
                answers = self._process(operations)
            self._metrics.batch_items.observe(len(operations))
            self._metrics.open_holds.set(len(self._leases))
            _answer(tickets, answers)

    def _take(self) -> list[_Ticket]:
        """What waits, in whole calls; empty at the end."""
        with self._changed:
            while not self._waiting and not self._stopping:
                self._changed.wait()
            tickets: list[_Ticket] = []
            items = 0
            while self._waiting and items < self._max_batch:
                tickets.append(self._waiting.popleft())
                items += len(tickets[-1].operations)
            self._waiting_items -= items
            self._metrics.queue_depth.set(self._waiting_items)
            return tickets

    def _process(self, operations: Sequence[Operation]) -> list[Answer]:
        """One answer for each operation. Whatever goes wrong becomes an answer: the writer itself never ends."""
        try:
            return self._attempt(operations)
        except Again as error:
            if len(operations) == 1:
                return [error]
            return [self._process([operation])[0] for operation in operations]
        except StoreError as error:
            self._lost = True
            self._metrics.failed_commits.inc()
            _log.error("batch_not_stored", items=len(operations), error=error.message)
            return [error] * len(operations)
        except Exception as error:
            if len(operations) == 1:
                _log.exception("operation_failed", operation=type(operations[0]).__name__, error=type(error).__name__)
                return [ServiceError("internal error; the service's log has it")]
            # Nothing of the attempt stands. Each on its own: only the one that is at fault fails.
            return [self._process([operation])[0] for operation in operations]

    def _attempt(self, operations: Sequence[Operation]) -> list[Answer]:
        if self._lost:
            self._store.reconnect()
            self._take_up_leases()
            self._lost = False
        now_ms = self._clock.monotonic_ms()
        self._leases.look(now_ms)
        if self._store.shared and now_ms >= self._look_at_ms:
            self._look_round(now_ms)
        names = Names()
        for operation in operations:
            operation.name(names)
        for _ in range(ATTEMPTS - 1):
            try:
                return self._write(operations, names, now_ms)
            except Again as again:
                names.add(again.names)
        return self._write(operations, names, now_ms)

    def _write(self, operations: Sequence[Operation], names: Names, now_ms: int) -> list[Answer]:
        """One transaction, and the leases that follow from it."""
        with self._store.session() as session:
            books = Books(session, self._leases, now_ms, sweeps=self._sweeps)
            books.fetch(names)
            # Only now, with the accounts locked: of two processes on one account, the one that judges later has the later
            # moment, however long it waited for the lock.
            books.begin(self._clock.wall_ms())
            answers: list[Answer] = [operation.apply(books) for operation in operations]
            if books.changes:
                session.save(books.changes)
        for reservation_id in books.closed:
            self._leases.drop(reservation_id)
        for reservation_id, lease in books.granted.items():
            self._leases.keep(reservation_id, lease)
        return answers

    def _take_up_leases(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._sweeps = self._store.may_sweep()
        self._leases.restart(now_ms, self._clock.wall_ms(), self._store.open_holds())
        self._look_at_ms = now_ms + LOOK_EVERY_MS

    def _look_round(self, now_ms: int) -> None:
        """Where others write too: take note of their holds; whoever becomes the one that sweeps begins with full leases, as
        after a start, since it does not know which of them were renewed."""
        if not self._sweeps and self._store.may_sweep():
            self._take_up_leases()
            return
        self._leases.compare(now_ms, self._clock.wall_ms(), self._store.open_holds())
        self._look_at_ms = now_ms + LOOK_EVERY_MS


def _answer(tickets: Sequence[_Ticket], answers: Sequence[Answer]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Ticket, list[Answer]]]] = {}
    start = 0
    for ticket in tickets:
        end = start + len(ticket.operations)
        by_loop.setdefault(ticket.loop, []).append((ticket, list(answers[start:end])))
        start = end
    for loop, pairs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, pairs)
        except RuntimeError:
            # The loop was closed: nobody waits any more. What was done stands.
            _log.warning("nobody_waits", calls=len(pairs))


def _resolve(pairs: Sequence[tuple[_Ticket, list[Answer]]]) -> None:
    for ticket, answers in pairs:
        if not ticket.answers.done():
            ticket.answers.set_result(answers)
