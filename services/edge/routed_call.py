"""A request on its way to a router, there, and on its way to another one. `router_pool.py` makes them.

Invariants: it is at one router at a time; what was shown to nobody may leave, at most MAX_MOVES times, and what was shown
stays; wherever it is begun anew, it has what is left of its time.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import grpc
from speedinfer.router.v1.inference_pb2 import GenerateItem, HoldPlaceRequest

from services.common import rpc
from services.edge.known_router import KnownRouter
from services.edge.openai_request import Need
from services.edge.router_call import MAX_TURNS
from services.edge.router_lost import Lost, NotBegun

# Of one request. Each may be a worker's work in vain.
MAX_MOVES = 2
Asked = TypeVar("Asked", bound=GenerateItem | HoldPlaceRequest)
Answer = TypeVar("Answer", covariant=True)


class Call(Protocol[Answer]):
    """A call to one router; see RelayCall."""

    @property
    def is_silent(self) -> bool:
        """Its router says nothing, though it was asked."""

    async def take(self) -> Sequence[Answer]:
        """What came."""

    def cancel(self) -> None:
        """Give it up."""

    async def close(self) -> None:
        """Give it up, if it has not ended by itself."""


class Pool(Protocol):
    """The routers."""

    # Calls whose owner waits, and was shown nothing yet. They come and go by themselves.
    unanswered: "set[RoutedCall[Any, Any]]"

    def find(self, preferred: KnownRouter, model: str, needs: Sequence[Need]) -> KnownRouter | None:
        """Where it can go now."""

    def change(self) -> asyncio.Future[None]:
        """Done when that may be another answer."""

    def forget(self, change: asyncio.Future[None]) -> None:
        """Nobody waits for it any more."""


class RoutedCall(Generic[Asked, Answer]):
    """A request on its way to a router, and then there."""

    def __init__(
        self,
        pool: Pool,
        preferred: KnownRouter,
        asked: Asked,
        begin: Callable[[KnownRouter, Asked], Call[Answer]],
        begun: Callable[[Answer], int],
    ) -> None:
        """`asked` is changed where it is begun anew. `begun`: which attempt an answer says has begun, if it says no more than
        that; 0 where it may have been shown to somebody."""
        self._pool = pool
        self.model = asked.model
        # Until something came of it: from then on it is sent nowhere else, and what it would send is not kept.
        self._asked: Asked | None = asked
        self._begin = begin
        self._begun = begun
        self._loop = asyncio.get_running_loop()
        self._made_s = self._loop.time()
        self._remaining_ms = asked.context.remaining_ms
        self.needs = [Need(each.feature, each.param) for each in asked.requirements]
        # Where it is, or is to go.
        self.router = preferred
        self._call: Call[Answer] | None = None
        self._change: asyncio.Future[None] | None = None
        self._turns = 0
        self._moves = 0
        self._moving = False
        self._answered = False
        self._cancelled = False

    @property
    def may_move(self) -> bool:
        """It is at a router that is silent, and nobody was shown anything of it."""
        fresh = not self._answered and not self._moving and not self._cancelled
        return fresh and self._moves < MAX_MOVES and self._call is not None and self._call.is_silent

    async def take(self) -> Sequence[Answer]:
        """What came; empty at the end, and after `cancel`. Lost if it ended otherwise."""
        while True:
            if self._call is None:
                assert self._asked is not None, "a call that was answered stays"
                router = await self._find()
                if router is None:
                    return []
                self.router = router
                self._call = self._begin(router, self._asked)
            try:
                answers = await self._wait(self._call)
            except NotBegun:
                self._turns += 1
                # A router that answered has begun it, whatever it says later.
                if self._turns >= MAX_TURNS or self._answered:
                    raise Lost(grpc.StatusCode.UNAVAILABLE) from None
            except Lost:
                if not self._moving:
                    raise
            else:
                if not self._moving:
                    if not self._answered:
                        self._look_at(answers)
                    return answers
            if self._moving:
                await self._leave(self._call)
            self._call = None
            self._shorten()

    def move(self) -> None:
        """Leave the router for another one, and wake whoever waits."""
        assert self.may_move, "what was shown stays"
        assert self._call is not None, "it is at a router"
        self._moving = True
        self._call.cancel()

    def cancel(self) -> None:
        """Give it up and wake whoever waits."""
        self._cancelled = True
        if self._call is not None:
            self._call.cancel()
        elif self._change is not None and not self._change.done():
            self._change.set_result(None)

    async def close(self) -> None:
        """Give it up, if it has not ended by itself."""
        self._cancelled = True
        if self._call is not None:
            await self._call.close()

    async def _wait(self, call: Call[Answer]) -> Sequence[Answer]:
        if self._answered:
            return await call.take()
        self._pool.unanswered.add(self)
        try:
            return await call.take()
        finally:
            self._pool.unanswered.discard(self)

    def _look_at(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            attempt = self._begun(answer)
            if not attempt:
                self._answered = True
                self._asked = None
                return
            assert self._asked is not None, "it was answered nothing"
            self._asked.context.attempt = max(self._asked.context.attempt, attempt)

    async def _leave(self, call: Call[Answer]) -> None:
        await call.close()
        self._moving = False
        self._moves += 1
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # A call of its own that is cancelled takes our own cancellation for its.
            raise asyncio.CancelledError
        assert self._asked is not None, "what was shown stays"
        if self._asked.context.attempt:
            self._asked.context.attempt += 1

    def _shorten(self) -> None:
        """It has what is left of its time. Lost if there is nothing."""
        left_ms = self._remaining_ms - int((self._loop.time() - self._made_s) * 1000)
        if left_ms <= 0:
            raise Lost(grpc.StatusCode.DEADLINE_EXCEEDED)
        assert self._asked is not None, "what was shown stays"
        self._asked.context.remaining_ms = left_ms

    async def _find(self) -> KnownRouter | None:
        """A router that can take it, waited for a little. None if it was cancelled."""
        until_s = self._loop.time() + rpc.TURNOVER_S
        while not self._cancelled:
            router = self._pool.find(self.router, self.model, self.needs)
            if router is not None:
                return router
            if self._loop.time() >= until_s:
                raise Lost(grpc.StatusCode.UNAVAILABLE)
            change = self._change = self._pool.change()
            timer = self._loop.call_at(until_s, _settle, change)
            try:
                await change
            finally:
                timer.cancel()
                self._pool.forget(change)
                self._change = None
        return None


def _settle(change: asyncio.Future[None]) -> None:
    if not change.done():
        change.set_result(None)
