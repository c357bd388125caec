"""From a body to a hold: the one path that decides whether a request is served. `inference.py` imports it.

The order is the contract's: who asks (401), what is asked (400), may they (403), does it exist and can it be done (404,
400, 503), is there room (429, 503; waited for in turn where workers have a bound), and only then the hold (402, limits, 409).
What is refused before the hold has touched no money. Before a 402 that a smaller bound on the prompt could mend, a worker is
asked how many tokens the prompt has, and the hold is asked for once more by its word.
"""

import asyncio
from dataclasses import dataclass, replace

import grpc
import structlog
from speedinfer.billing.v1.reservation_pb2 import (
    REFUSAL_REASON_INSUFFICIENT_CREDIT,
    RESERVATION_STATE_HELD,
    PromptSize,
    Refusal,
    ReleaseItem,
    Reservation,
    ReserveItem,
    ReserveResult,
)
from speedinfer.common.v1.context_pb2 import RequestContext

from services.common import ids, money
from services.common.settings import EdgeLimits
from services.edge import client_headers
from services.edge.arrival import Arrival
from services.edge.billing_client import BillingClient, BillingUnavailable, NotSent
from services.edge.body_reader import BodyReader, Check
from services.edge.client import Client
from services.edge.fleet_view import FleetView, Route
from services.edge.holds import Holds
from services.edge.key_cache import Caller, KeyCache
from services.edge.known_router import KnownRouter
from services.edge.openai_errors import (
    BILLING_UNAVAILABLE,
    CLIENT_GONE,
    DRAINING,
    TOO_MANY_ORPHANS,
    TOO_MANY_STREAMS,
    Refused,
    from_refusal,
    model_not_allowed,
)
from services.edge.openai_request import Bounds, InferenceRequest
from services.edge.orphans import Orphans
from services.edge.place import Place
from services.edge.prompt_count import PromptCount, PromptCounter
from services.edge.router_pool import RouterPool
from services.edge.settler import Settler

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that has its hold."""

    arrival: Arrival
    caller: Caller
    request: InferenceRequest
    reservation: Reservation
    # The x-ratelimit headers of the answer.
    headers: dict[str, str]
    deadline_s: float
    # Where it is to go.
    router: KnownRouter
    # Its place on a worker, where it needed one. Whoever has the hold closes it, too.
    place: Place | None
    # What the hold was made by, where it was a worker's count.
    counted: PromptCount | None = None

    def without_prompt(self) -> "Admitted":
        """The same for the time after dispatch: a stream may be long, and its prompt large."""
        return replace(self, request=replace(self.request, members=()))


class Admission:
    """Judges requests and sets their holds aside."""

    def __init__(
        self,
        keys: KeyCache,
        fleet: FleetView,
        routers: RouterPool,
        billing: BillingClient,
        settler: Settler,
        holds: Holds,
        orphans: Orphans,
        counter: PromptCounter,
        limits: EdgeLimits,
    ) -> None:
        self._keys = keys
        self._fleet = fleet
        self._routers = routers
        self._billing = billing
        self._settler = settler
        self._holds = holds
        self._orphans = orphans
        self._counter = counter
        self._limits = limits
        self._bodies = BodyReader(Bounds(limits.max_json_depth, limits.max_messages))
        self.open = 0
        self.draining = False

    async def authorise(self, credential: str) -> Caller:
        """Who asks. Refused (401, or 503 without billing)."""
        try:
            return await self._keys.authorise(credential)
        except (BillingUnavailable, grpc.aio.AioRpcError):
            raise Refused(BILLING_UNAVAILABLE) from None

    async def admit(
        self, arrival: Arrival, client: Client, credential: str, idempotency_key: str, body: bytes, check: Check
    ) -> Admitted:
        """The hold for a request, or Refused. Whoever gets a hold settles or releases it."""
        caller = await self.authorise(credential)
        arrival.key_id = caller.key_id
        key_text = client_headers.idempotency_key({"idempotency-key": idempotency_key})
        request = await self._bodies.read(body, check)
        if not caller.may_use(request.model):
            raise Refused(model_not_allowed(request.model))
        route = await self._fleet.admit(request.model, request.needs)
        # Only now: a name that nobody serves is a text of the client's, which is in no log.
        arrival.model = request.model
        self._find_room(caller, request, route.workers.ids)
        place: Place | None = None
        if not route.workers.has_room(request.needs):
            place = await self._find_place(arrival, client, caller, request, route)
        try:
            return await self._hold(arrival, caller, request, route, key_text, place)
        except BaseException:
            if place is not None:
                place.close()
            raise

    async def _find_place(
        self, arrival: Arrival, client: Client, caller: Caller, request: InferenceRequest, route: Route
    ) -> Place:
        """A place on a worker, waited for in turn with other keys. Refused if there is none, or nobody to wait for."""
        remaining_s = arrival.started_s + self._limits.request_timeout_s - asyncio.get_running_loop().time()
        place = Place(self._routers, route.router, arrival, request, caller.key_id, remaining_s)
        client.on_leave(place.close)
        try:
            if not await place.wait():
                raise Refused(CLIENT_GONE)
        except BaseException:
            place.close()
            raise
        finally:
            client.on_leave(None)
        return place

    def _find_room(self, caller: Caller, request: InferenceRequest, worker_ids: list[str]) -> None:
        if self.draining:
            raise Refused(DRAINING)
        if not self._settler.accepts_work():
            raise Refused(BILLING_UNAVAILABLE)
        if self.open > self._limits.max_streams:
            raise Refused(TOO_MANY_STREAMS)
        if request.stream and self._orphans.refuses(caller.key_id, worker_ids):
            raise Refused(TOO_MANY_ORPHANS)

    async def _hold(
        self,
        arrival: Arrival,
        caller: Caller,
        request: InferenceRequest,
        route: Route,
        idempotency_key: str,
        place: Place | None,
    ) -> Admitted:
        deadline_s = arrival.started_s + self._limits.request_timeout_s
        result = await self._reserve(arrival, caller, request, idempotency_key, deadline_s)
        counted: PromptCount | None = None
        if result.refusal.count_may_help:
            remaining_s = deadline_s - asyncio.get_running_loop().time()
            worker_id = place.worker_id if place is not None else ""
            counted = await self._counter.count(arrival, caller.key_id, request, route, worker_id, remaining_s)
        if counted is not None:
            # An id that was refused is not used again: from here on the request goes by another.
            refused_id, arrival.request_id = arrival.request_id, ids.uuid7()
            _log.info(
                "prompt_counted",
                request_id=arrival.request_id,
                refused_id=refused_id,
                worker_id=counted.worker_id,
                prompt_tokens=counted.tokens,
            )
            again = await self._reserve(arrival, caller, request, idempotency_key, deadline_s, counted)
            if not _is_more(again.refusal, result.refusal):
                result = again
        headers = client_headers.rate_limits(result.limits) if result.HasField("limits") else {}
        if result.WhichOneof("outcome") == "refusal":
            raise Refused(from_refusal(result.refusal), headers)
        if result.reservation.state != RESERVATION_STATE_HELD:
            raise Refused(BILLING_UNAVAILABLE)
        self._holds.keep(arrival.request_id, result.reservation.lease_ms)
        router = place.router if place is not None else route.router
        return Admitted(arrival, caller, request, result.reservation, headers, deadline_s, router, place, counted)

    async def _reserve(
        self,
        arrival: Arrival,
        caller: Caller,
        request: InferenceRequest,
        idempotency_key: str,
        deadline_s: float,
        counted: PromptCount | None = None,
    ) -> ReserveResult:
        size = request.prompt
        item = ReserveItem(
            context=arrival.context(deadline_s - asyncio.get_running_loop().time()),
            reservation_id=arrival.request_id,
            key_id=caller.key_id,
            model=request.model,
            operation=request.operation,
            prompt=PromptSize(
                text_bytes=size.text_bytes,
                messages=size.messages,
                has_tools=size.has_tools,
                images=size.images,
                inputs=size.inputs,
                token_ids=size.token_ids,
            ),
            output_limit=request.output_limit,
            sequences=request.sequences,
            counted_prompt_tokens=counted.tokens if counted is not None else None,
            idempotency_key=idempotency_key,
        )
        try:
            return await self._billing.reserve(item)
        except NotSent:
            raise Refused(BILLING_UNAVAILABLE) from None
        except (BillingUnavailable, grpc.aio.AioRpcError) as error:
            # The hold may have been made all the same, or be made later: a release settles that either way.
            _log.warning("reserve_unanswered", request_id=arrival.request_id, error=type(error).__name__)
            await self._give_up(arrival, "billing_unavailable")
            raise Refused(BILLING_UNAVAILABLE) from None
        except asyncio.CancelledError:
            # The end of a drain. The item may be on its way, in a message with others.
            await self._give_up(arrival, DRAINING.cause)
            raise

    async def _give_up(self, arrival: Arrival, cause: str) -> None:
        """See to it that no hold is left by a question without an answer; waits for nothing."""
        context = RequestContext(request_id=arrival.request_id, traceparent=arrival.traceparent)
        await self._settler.release(ReleaseItem(context=context, reservation_id=arrival.request_id, cause=cause), 0)


def _is_more(refusal: Refusal, before: Refusal) -> bool:
    """Whether a hold by a count came to more than the one by the bound: a worker's nonsense is no reason to tell of it."""
    if refusal.reason != REFUSAL_REASON_INSUFFICIENT_CREDIT:
        return False
    return money.from_money(refusal.hold) >= money.from_money(before.hold)
