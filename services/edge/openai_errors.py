"""Everything that a client can be told instead of an answer, in one table. Pure; any module of the edge may import it.

A `Problem` is a value: status, the four members of OpenAI's error object, and the two headers that steer a client's
retries. Code that cannot go on raises `Refused` with one; `http_server.py` turns it into an answer in one place.

Invariants: all four members are always there; `retry-after` is 1 to 60 seconds; no text comes from a worker's inside (the
router has already made its texts safe) and none repeats a prompt or a key.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import orjson
from speedinfer.billing.v1.reservation_pb2 import Refusal, RefusalReason
from speedinfer.router.v1.frame_pb2 import Failure, FailureReason

from services.common import money

MAX_RETRY_AFTER_S = 60
CONTEXT_LENGTH = "context_length_exceeded"
_REQUEST = "invalid_request_error"
_LIMIT = "rate_limit_error"
_SERVER = "server_error"


@dataclass(frozen=True, slots=True)
class Problem:
    """One answer of the error table."""

    status: int
    message: str
    type: str
    code: str | None
    param: str | None = None
    retry_after_s: int | None = None
    # False: an SDK must not try again by itself. None: its own rule (408, 409, 429, 5xx) is right.
    retry: bool | None = None
    # Where `code` is a worker's own, which may be anything: the word of ours that reports and metrics use instead.
    word: str = ""

    def body(self) -> bytes:
        """The error object as JSON."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return orjson.dumps({"error": error})

    def headers(self) -> dict[str, str]:
        """The headers that go with it."""
        headers = {}
        if self.retry_after_s is not None:
            headers["retry-after"] = str(min(max(self.retry_after_s, 1), MAX_RETRY_AFTER_S))
        if self.retry is not None:
            headers["x-should-retry"] = "true" if self.retry else "false"
        return headers

    @property
    def cause(self) -> str:
        """The word that reports, logs and metrics use; one of few."""
        return self.word or self.code or self.type


class Refused(Exception):
    """The request ends here, with this problem and these headers beside its own."""

    def __init__(self, problem: Problem, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.headers = dict(headers or {})


def invalid(message: str, param: str | None = None) -> Problem:
    """400: the request is wrong in itself."""
    return Problem(400, message, _REQUEST, None, param)


UNKNOWN_URL = Problem(404, "There is no such URL here; GET /openapi.json lists them all.", _REQUEST, "unknown_url")
UNKNOWN_ADMIN_URL = Problem(
    404,
    "There is no such URL here; operators have /admin/v1/workers, /admin/v1/workers/{id}, /admin/v1/workers/{id}/drain"
    " and /metrics.",
    _REQUEST,
    "unknown_url",
)
METHOD_NOT_ALLOWED = Problem(405, "This URL does not take this method.", _REQUEST, "method_not_allowed")
BAD_HTTP = Problem(400, "The request is not well-formed HTTP.", _REQUEST, "bad_http")
INTERNAL = Problem(500, "The gateway failed; its log has the request id.", _SERVER, "internal_error")
# Nobody reads it; logs and metrics do. The status is nginx's.
CLIENT_GONE = Problem(499, "The client closed the connection.", _REQUEST, "client_left")
INVALID_KEY = Problem(
    401,
    "Incorrect API key provided. Send a valid key as 'Authorization: Bearer sk-si-...'.",
    _REQUEST,
    "invalid_api_key",
)
ADMIN_TOKEN_NEEDED = Problem(
    401,
    "This URL needs the operators' token: 'Authorization: Bearer <admin token>'.",
    _REQUEST,
    "invalid_admin_token",
)
BODY_TOO_SLOW = Problem(408, "The body did not arrive in time.", _REQUEST, "request_timeout")
BILLING_UNAVAILABLE = Problem(
    503, "Billing does not answer; nothing was charged. Try again.", _SERVER, "billing_unavailable", retry_after_s=2
)
CHARGE_UNKNOWN = Problem(
    503,
    "Billing does not answer and the charge could not be written down; it may be booked yet. GET /v1/requests/{id} tells.",
    _SERVER,
    "billing_unavailable",
    retry_after_s=MAX_RETRY_AFTER_S,
    # The work was done and may be charged: a client's own retry would do it twice.
    retry=False,
)
SETTLEMENT_REFUSED = Problem(
    503,
    "The charge could not be booked; nothing was charged and the operator was told.",
    _SERVER,
    "billing_unavailable",
    retry_after_s=MAX_RETRY_AFTER_S,
    retry=False,
)
ROUTER_UNAVAILABLE = Problem(
    503, "The router does not answer. Try again.", _SERVER, "no_worker_available", retry_after_s=2
)
ROUTER_FULL = Problem(
    503, "The router is at its bound of open requests. Try again.", _SERVER, "overloaded", retry_after_s=1
)
ROUTER_LOST = Problem(502, "The connection to the worker was lost.", _SERVER, "upstream_error")
TOO_MANY_STREAMS = Problem(
    503, "The gateway is at its bound of open requests. Try again.", _SERVER, "overloaded", retry_after_s=1
)
TOO_MANY_BODIES = Problem(
    503, "The gateway is reading as much as it can hold. Try again.", _SERVER, "overloaded", retry_after_s=1
)
TOO_MANY_CONNECTIONS = Problem(
    503, "The gateway is at its bound of connections. Try again.", _SERVER, "overloaded", retry_after_s=1
)
DRAINING = Problem(503, "This gateway is shutting down. Try again.", _SERVER, "overloaded", retry_after_s=1)
TOO_MANY_ORPHANS = Problem(
    429,
    "Streams that this key left are still being metered; new ones are refused until they have ended.",
    _LIMIT,
    "rate_limit_exceeded",
    retry_after_s=10,
)
USAGE_MISSING = Problem(
    502, "The worker reported no usage; nothing was charged.", _SERVER, "usage_missing", retry=False
)
TOTAL_DEADLINE = Problem(504, "The request's total deadline ran out.", _SERVER, "upstream_timeout", retry=False)


def too_large(limit_bytes: int) -> Problem:
    """413: the body, after decompression, is over the limit."""
    return Problem(413, f"The body is larger than {limit_bytes} bytes.", _REQUEST, "request_too_large")


def unsupported_media_type(message: str) -> Problem:
    """415: what came is not JSON as we read it."""
    return Problem(415, message, _REQUEST, "unsupported_media_type")


def model_not_allowed(model: str) -> Problem:
    """403: the key may not use the model."""
    return Problem(403, f"This key may not use the model {model!r}.", _REQUEST, "model_not_allowed", "model")


def model_not_found(model: str) -> Problem:
    """404: no worker of that name is registered."""
    return Problem(404, f"The model {model!r} does not exist.", _REQUEST, "model_not_found", "model")


def request_not_found(request_id: str) -> Problem:
    """404: the account has no such request."""
    return Problem(404, f"This account has no request {request_id!r}.", _REQUEST, "request_not_found")


def no_worker(model: str) -> Problem:
    """503: workers are registered, none may take it now."""
    message = f"No worker of the model {model!r} can take requests now."
    return Problem(503, message, _SERVER, "no_worker_available", retry_after_s=5)


def for_event(problem: Problem) -> bytes:
    """The problem as the last SSE event of a stream that has begun."""
    return b"data: " + problem.body() + b"\n\n"


_UPSTREAM = Problem(502, "The worker failed.", _SERVER, "upstream_error")
_F = FailureReason
_FAILURES: dict[int, Problem] = {
    _F.FAILURE_REASON_UNSPECIFIED: _UPSTREAM,
    _F.FAILURE_REASON_MODEL_NOT_FOUND: Problem(404, "The model does not exist.", _REQUEST, "model_not_found", "model"),
    _F.FAILURE_REASON_NO_WORKER: Problem(
        503, "No worker can take the request now.", _SERVER, "no_worker_available", retry_after_s=5
    ),
    _F.FAILURE_REASON_OVERLOADED: Problem(503, "All workers are busy.", _SERVER, "overloaded", retry_after_s=1),
    _F.FAILURE_REASON_UNSUPPORTED: invalid("No worker of the model can honour the request."),
    _F.FAILURE_REASON_REJECTED: invalid("The worker refused the request."),
    _F.FAILURE_REASON_UPSTREAM: _UPSTREAM,
    _F.FAILURE_REASON_USAGE_MISSING: USAGE_MISSING,
    _F.FAILURE_REASON_INVALID_RESPONSE: Problem(
        502, "The worker's answer cannot be read.", _SERVER, "invalid_upstream_response", retry=False
    ),
    _F.FAILURE_REASON_TIMEOUT: Problem(504, "The worker took too long.", _SERVER, "upstream_timeout"),
    _F.FAILURE_REASON_DRAINING: Problem(
        503, "The router is shutting down. Try again.", _SERVER, "no_worker_available", retry_after_s=1
    ),
    _F.FAILURE_REASON_ANSWER_TOO_LARGE: Problem(
        502, "The worker's answer is too large.", _SERVER, "invalid_upstream_response", retry=False
    ),
}
# A worker's own refusals that pass through; any other status would let a worker speak for the gateway.
_PASSED_STATUSES = {400: None, 413: "request_too_large", 422: None}


def from_failure(failure: Failure) -> Problem:
    """What the client is told of a failure that the router reports."""
    problem = _FAILURES.get(failure.reason, _UPSTREAM)
    changes: dict[str, object] = {}
    if failure.message:
        changes["message"] = failure.message
    if failure.param:
        changes["param"] = failure.param
    if failure.retry_after_ms and problem.status in (429, 503):
        changes["retry_after_s"] = _seconds(failure.retry_after_ms)
    if failure.reason == _F.FAILURE_REASON_REJECTED:
        status = failure.http_status if failure.http_status in _PASSED_STATUSES else 400
        own = _PASSED_STATUSES[status]
        word = CONTEXT_LENGTH if failure.code == CONTEXT_LENGTH else own or problem.type
        changes |= {"status": status, "code": failure.code or own, "word": word}
    if failure.reason == _F.FAILURE_REASON_TIMEOUT:
        if failure.deadline and failure.deadline not in failure.message:
            changes["message"] = f"The {failure.deadline} deadline ran out."
        if failure.deadline == "total":
            changes["retry"] = False
    return replace(problem, **changes)  # type: ignore[arg-type]


_R = RefusalReason
_REFUSALS: dict[int, Problem] = {
    _R.REFUSAL_REASON_INVALID: invalid("The request is impossible to price."),
    # We make the ids ourselves: these two say that a clock is wrong, which another try may not see.
    _R.REFUSAL_REASON_ID_EXPIRED: BILLING_UNAVAILABLE,
    _R.REFUSAL_REASON_CONFLICT: BILLING_UNAVAILABLE,
    _R.REFUSAL_REASON_INVALID_KEY: INVALID_KEY,
    _R.REFUSAL_REASON_ACCOUNT_CLOSED: replace(INVALID_KEY, message="The key's account is closed."),
    _R.REFUSAL_REASON_MODEL_NOT_ALLOWED: Problem(
        403, "This key may not use the model.", _REQUEST, "model_not_allowed", "model"
    ),
    _R.REFUSAL_REASON_MODEL_NOT_PRICED: Problem(
        503, "The model has no price yet.", _SERVER, "model_not_priced", "model", MAX_RETRY_AFTER_S, False
    ),
    _R.REFUSAL_REASON_DUPLICATE_REQUEST: Problem(
        409, "The Idempotency-Key is in use.", _REQUEST, "duplicate_request", retry_after_s=1
    ),
    _R.REFUSAL_REASON_LIMIT: Problem(
        429, "A limit of this key is reached.", _LIMIT, "rate_limit_exceeded", retry_after_s=1
    ),
    _R.REFUSAL_REASON_HOLDS_IN_FLIGHT: Problem(
        429, "The account's open requests hold the rest of its credit.", _LIMIT, "holds_in_flight", retry_after_s=1
    ),
    _R.REFUSAL_REASON_INSUFFICIENT_CREDIT: Problem(
        402,
        "The account's credit does not cover the request.",
        "insufficient_quota",
        "insufficient_credit",
        retry=False,
    ),
    _R.REFUSAL_REASON_BUSY: BILLING_UNAVAILABLE,
}
# Billing names its own fields; the client knows the members of its body.
_PARAMS = {"output_limit": "max_tokens", "sequences": "n", "prompt.images": "messages", "images": "messages"}
_OWN_WORDS = (_R.REFUSAL_REASON_ID_EXPIRED, _R.REFUSAL_REASON_CONFLICT, _R.REFUSAL_REASON_INVALID_KEY)


def from_refusal(refusal: Refusal) -> Problem:
    """What the client is told of a hold that billing refuses."""
    reason = refusal.reason
    problem = _REFUSALS.get(reason, BILLING_UNAVAILABLE)
    message = problem.message if reason in _OWN_WORDS else refusal.message or problem.message
    if reason in (_R.REFUSAL_REASON_INSUFFICIENT_CREDIT, _R.REFUSAL_REASON_HOLDS_IN_FLIGHT) and refusal.HasField(
        "hold"
    ):
        hold, available = money.from_money(refusal.hold), money.from_money(refusal.available)
        message = (
            f"{problem.message} The request would hold {money.format_usd(hold)} USD; "
            f"{money.format_usd(available)} USD is available."
        )
    if reason == _R.REFUSAL_REASON_DUPLICATE_REQUEST:
        state = "was charged" if refusal.other_charged else "is still running"
        message = f"The Idempotency-Key belongs to request {refusal.other_request_id}, which {state}."
        if refusal.other_charged:
            problem = replace(problem, retry_after_s=None, retry=False)
    if reason == _R.REFUSAL_REASON_LIMIT and not refusal.retry_after_ms:
        # A day's or a month's spend, or more tokens at once than a minute has: no SDK should try that by itself.
        problem = replace(problem, retry_after_s=MAX_RETRY_AFTER_S, retry=False)
    if reason == _R.REFUSAL_REASON_INVALID and refusal.field:
        problem = replace(problem, param=_PARAMS.get(refusal.field, refusal.field))
    if refusal.retry_after_ms and problem.status in (409, 429, 503):
        problem = replace(problem, retry_after_s=_seconds(refusal.retry_after_ms))
    return replace(problem, message=message)


def _seconds(milliseconds: int) -> int:
    return min(max(-(-milliseconds // 1000), 1), MAX_RETRY_AFTER_S)
