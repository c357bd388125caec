"""Concurrent calls of one kind share messages: whatever waits when the last message is answered goes in the next one.

There is no timer: an item that finds nothing under way goes at once, with what else came in the same turn of the loop. Each
item has its own outcome, as if it were alone: its own wait, its own error, and nobody who leaves takes others along.
Invariants: items go in the order in which they came, one message at a time; what nobody waits for any more is not sent; the
queue and a message are bounded; if a message fails for what is in it, it goes again in halves, until the item that is at
fault is alone. Items must be safe to send twice. The billing client uses it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import grpc
from google.protobuf.message import Message

from services.edge.billing_errors import AGAIN, UNANSWERED, BillingUnavailable, NotSent, QueueFull

Item = TypeVar("Item", bound=Message)
Result = TypeVar("Result")
# Billing takes more, but what shares a message shares a commit, and so the wait for it.
MAX_ITEMS = 256
# An item has some 400 bytes. What does not fit waits for the next message; what is larger than this goes alone.
MAX_BYTES = 1024 * 1024
# Three times as many streams as an edge is made for; beyond them billing is busy.
MAX_WAITING = 16_384
_FIRST_PAUSE_S = 0.05
# One call stands for all who wait, so that it may be repeated more often than the calls of each would be.
_LONGEST_PAUSE_S = 0.2


@dataclass(slots=True, eq=False)
class _Ticket(Generic[Item, Result]):
    """An item, and who waits for it."""

    item: Item
    size_bytes: int
    deadline_s: float
    answer: "asyncio.Future[Result]"
    sent: bool = False

    def expire(self) -> None:
        """Its wait is over."""
        if not self.answer.done():
            why = grpc.StatusCode.DEADLINE_EXCEEDED.name
            self.answer.set_exception(BillingUnavailable(why) if self.sent else NotSent(why))

    def fail(self, error: Exception) -> None:
        """It has no result."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Batching(Generic[Item, Result]):
    """Calls of one kind. `send` sends items within a time and answers a result for each, in their order."""

    def __init__(
        self,
        name: str,
        send: Callable[[list[Item], float], Awaitable[Sequence[Result]]],
        *,
        max_items: int = MAX_ITEMS,
        max_bytes: int = MAX_BYTES,
        max_waiting: int = MAX_WAITING,
        sending: Callable[[int], None] = lambda _items: None,
    ) -> None:
        self._name = name
        self._send = send
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._max_waiting = max_waiting
        # Told of each message's items, once a message.
        self._sending = sending
        # Not yet sent, or to be sent again.
        self._waiting: OrderedDict[_Ticket[Item, Result], None] = OrderedDict()
        self._sender: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, item: Item, timeout_s: float) -> Result:
        """An item's result. BillingUnavailable where there is none in time, QueueFull at once where too many wait;
        AioRpcError where billing refuses the item as such."""
        if len(self._waiting) >= self._max_waiting:
            raise QueueFull("too many calls wait")
        loop = asyncio.get_running_loop()
        ticket: _Ticket[Item, Result] = _Ticket(item, item.ByteSize(), loop.time() + timeout_s, loop.create_future())
        self._waiting[ticket] = None
        if self._sender is None:
            self._sender = loop.create_task(self._run(), name=self._name)
        timer = loop.call_at(ticket.deadline_s, ticket.expire)
        try:
            return await ticket.answer
        finally:
            timer.cancel()
            self._waiting.pop(ticket, None)

    async def close(self) -> None:
        """Send nothing more; whoever still waits has no answer."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)
        for ticket in self._waiting:
            ticket.fail(BillingUnavailable("closed") if ticket.sent else NotSent("closed"))
        self._waiting.clear()

    async def _run(self) -> None:
        """Sends until nothing waits."""
        pause_s = _FIRST_PAUSE_S
        try:
            while tickets := self._take():
                if again := await self._attempt(tickets):
                    self._put_back(again, pause_s)
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                else:
                    pause_s = _FIRST_PAUSE_S
        finally:
            self._sender = None

    def _take(self) -> list[_Ticket[Item, Result]]:
        taken: list[_Ticket[Item, Result]] = []
        size_bytes = 0
        for ticket in self._waiting:
            size_bytes += ticket.size_bytes
            if taken and (len(taken) >= self._max_items or size_bytes > self._max_bytes):
                break
            taken.append(ticket)
        for ticket in taken:
            ticket.sent = True
            del self._waiting[ticket]
        return taken

    def _put_back(self, tickets: Sequence[_Ticket[Item, Result]], pause_s: float) -> None:
        """To the head of the queue, in their order, if they can still wait for another attempt."""
        next_s = asyncio.get_running_loop().time() + pause_s
        for ticket in reversed(tickets):
            if ticket.deadline_s <= next_s:
                ticket.fail(BillingUnavailable(grpc.StatusCode.UNAVAILABLE.name))
            elif not ticket.answer.done():
                self._waiting[ticket] = None
                self._waiting.move_to_end(ticket, last=False)

    async def _attempt(self, tickets: Sequence[_Ticket[Item, Result]]) -> list[_Ticket[Item, Result]]:
        """Send once; answers those that are to be sent again."""
        tickets = [ticket for ticket in tickets if not ticket.answer.done()]
        if not tickets:
            return []
        self._sending(len(tickets))
        timeout_s = max(ticket.deadline_s for ticket in tickets) - asyncio.get_running_loop().time()
        try:
            results = await self._send([ticket.item for ticket in tickets], max(timeout_s, 0.001))
        except asyncio.CancelledError:
            _fail(tickets, BillingUnavailable("closed"))
            raise
        except Exception as error:
            code = error.code() if isinstance(error, grpc.aio.AioRpcError) else None
            if code in AGAIN:
                return tickets
            if len(tickets) > 1 and code is not grpc.StatusCode.DEADLINE_EXCEEDED:
                half = len(tickets) // 2
                return [*await self._attempt(tickets[:half]), *await self._attempt(tickets[half:])]
            _fail(tickets, BillingUnavailable(code.name) if code in UNANSWERED else error)
            return []
        if len(results) != len(tickets):
            _fail(tickets, BillingUnavailable(f"{len(results)} results for {len(tickets)} items"))
            return []
        for ticket, result in zip(tickets, results, strict=True):
            if not ticket.answer.done():
                ticket.answer.set_result(result)
        return []


def _fail(tickets: Sequence[_Ticket[Item, Result]], error: Exception) -> None:
    for ticket in tickets:
        ticket.fail(error)
