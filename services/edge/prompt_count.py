"""A prompt's tokens as a worker counts them, asked for before a request is refused for want of credit. Admission imports it.

Nothing here touches money: what comes out is a number in place of the bound that a hold is made by, or none, and then the
refusal stands. Invariants: one question at a time for each key, so that nobody loads a worker with requests that are not
paid for; few of a key wait for their turn, and with it no longer than `timeout_s`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
import structlog
from speedinfer.common.v1.operation_pb2 import OPERATION_EMBEDDING
from speedinfer.router.v1.inference_pb2 import CountTokensRequest, Member, Requirement

from services.edge.arrival import Arrival
from services.edge.fleet_view import Route
from services.edge.metrics import Metrics
from services.edge.openai_request import InferenceRequest
from services.edge.router_client import RouterClient

_log = structlog.get_logger(__name__)
# Of one key; each may keep a place on a worker meanwhile.
MAX_WAITING_PER_KEY = 8


@dataclass(frozen=True, slots=True)
class PromptCount:
    """A worker's word."""

    tokens: int
    worker_id: str


class _Turn:
    """The questions of one key."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        # With the one that is being asked.
        self.asking = 0


class PromptCounter:
    """Asks the router for counts."""

    def __init__(self, metrics: Metrics, timeout_s: float) -> None:
        self._metrics = metrics
        self._timeout_s = timeout_s
        # Only keys of which somebody asks.
        self._turns: dict[str, _Turn] = {}

    async def count(
        self,
        arrival: Arrival,
        key_id: str,
        request: InferenceRequest,
        route: Route,
        preferred_worker_id: str,
        remaining_s: float,
    ) -> PromptCount | None:
        """The prompt's tokens; None if there is nobody to ask, or no answer in time."""
        if not _is_countable(request) or not route.workers.count_tokens:
            return None
        wait_s = min(self._timeout_s, remaining_s)
        try:
            async with asyncio.timeout(wait_s), self._turn(key_id) as ours:
                router = route.router.client
                found = await self._ask(router, arrival, request, preferred_worker_id, wait_s) if ours else None
        except TimeoutError:
            found = None
        self._metrics.prompt_counts.labels("counted" if found else "not_counted").inc()
        return found

    async def _ask(
        self,
        router: RouterClient,
        arrival: Arrival,
        request: InferenceRequest,
        preferred_worker_id: str,
        wait_s: float,
    ) -> PromptCount | None:
        message = CountTokensRequest(
            context=arrival.context(wait_s),
            model=request.model,
            operation=request.operation,
            members=[Member(name=name, json=text) for name, text in request.members],
            requirements=[Requirement(feature=need.feature, param=need.param) for need in request.needs],
            preferred_worker_id=preferred_worker_id,
        )
        try:
            answer = await router.count_tokens(message, wait_s)
        except grpc.aio.AioRpcError as error:
            _log.warning("count_not_answered", request_id=arrival.request_id, status=error.code().name)
            return None
        if answer.WhichOneof("outcome") != "prompt_tokens" or answer.prompt_tokens < 1:
            return None
        return PromptCount(answer.prompt_tokens, answer.worker_id)

    @asynccontextmanager
    async def _turn(self, key_id: str) -> AsyncIterator[bool]:
        """The key's turn; False if too many wait for it."""
        turn = self._turns.setdefault(key_id, _Turn())
        if turn.asking > MAX_WAITING_PER_KEY:
            yield False
            return
        turn.asking += 1
        try:
            async with turn.lock:
                yield True
        finally:
            turn.asking -= 1
            if not turn.asking:
                del self._turns[key_id]


def _is_countable(request: InferenceRequest) -> bool:
    """Whether a count could say more than is known: images become tokens that no text shows, and token ids are counted."""
    return request.operation != OPERATION_EMBEDDING and not request.prompt.images and not request.prompt.token_ids
