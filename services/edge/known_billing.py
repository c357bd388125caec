"""A billing process that this edge knows, at one address. `billing_pool.py` has them all.

Invariants: after a failure or a silence it is on probation, until it has answered a call or, after a pause that grows, has said
that it serves; a call that is given up for its silence is given up once, and only where another process is there to ask.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import grpc
import structlog
from google.protobuf.message import Message
from speedinfer.billing.v1 import access_pb2_grpc, reservation_pb2_grpc

from services.common import rpc
from services.common.backoff import Backoff
from services.common.tasks import TaskSet
from services.edge import health_check
from services.edge.billing_errors import AGAIN
from services.edge.health_check import Health

_log = structlog.get_logger(__name__)
# Commits take milliseconds. Less than a settlement's whole wait, so that something of it is left for another one.
PATIENCE_S = 0.5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 4.0
ASK_EVERY_S = 0.25
ASK_WITHIN_S = 0.5

Response = TypeVar("Response")
Call = grpc.aio.UnaryUnaryCall[Any, Response]
# Which of its calls.
Method = Callable[["KnownBilling"], Callable[..., Call[Response]]]


class Silent(Exception):
    """It said nothing for too long, and the call was given up."""


class KnownBilling:
    """One process."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.channel = rpc.channel(address)
        self.reservations = reservation_pb2_grpc.ReservationServiceStub(self.channel)
        self.access = access_pb2_grpc.AccessServiceStub(self.channel)
        # Calls of ours that run there.
        self.open = 0
        # Not on probation.
        self.fit = True
        self.failed_at_s = 0.0
        self._pause = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._probation: asyncio.Task[None] | None = None
        self._tasks = TaskSet()

    async def ask(
        self, method: Method[Response], request: Message, timeout_s: float, has_other: Callable[[], bool]
    ) -> Response:
        """An answer. AioRpcError where it failed; Silent where there is none for too long, and another one is there."""
        call = method(self)(request, timeout=timeout_s)
        patience = _Patience(call, has_other)
        self.open += 1
        try:
            response = await call
        except grpc.aio.AioRpcError as error:
            if error.code() in AGAIN:
                self._failed(error.code().name)
            raise
        except asyncio.CancelledError:
            # Giving the call up wakes us with this; so does whoever wants us to end.
            task = asyncio.current_task()
            if not patience.is_lost or (task is not None and task.cancelling()):
                raise
            self._failed("SILENT")
            raise Silent from None
        finally:
            patience.end()
            self.open -= 1
        self._answered()
        return response

    async def close(self) -> None:
        """Break off what runs."""
        await self._tasks.cancel()
        await self.channel.close()

    def _answered(self) -> None:
        self._pause.reset()
        if not self.fit:
            self._pass()
            if self._probation is not None:
                self._probation.cancel()

    def _failed(self, why: str) -> None:
        self.failed_at_s = asyncio.get_running_loop().time()
        if self.fit:
            self.fit = False
            _log.warning("billing_on_probation", billing=self.address, why=why)
            self._probation = self._tasks.spawn(self._ask_until_it_serves(), "billing-probation")

    def _pass(self) -> None:
        self.fit = True
        _log.info("billing_fit", billing=self.address)

    async def _ask_until_it_serves(self) -> None:
        await asyncio.sleep(self._pause.next_s())
        while True:
            if await health_check.ask(self.channel, ASK_WITHIN_S) is Health.SERVING:
                self._pass()
                return
            await asyncio.sleep(ASK_EVERY_S)


class _Patience:
    """Gives a call up when it has no answer for too long and there is another process, or as soon as there is one then."""

    def __init__(self, call: Call[Any], has_other: Callable[[], bool]) -> None:
        self._call = call
        self._has_other = has_other
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(PATIENCE_S, self._look)
        self.is_lost = False

    def end(self) -> None:
        """The call is over."""
        self._timer.cancel()

    def _look(self) -> None:
        if self._has_other():
            self.is_lost = True
            self._call.cancel()
        else:
            self._timer = self._loop.call_later(ASK_EVERY_S, self._look)
