"""What a transport is: the border between the router and one worker. Transports implement it, `dispatch.py` uses it.

A transport speaks one worker's protocol and nothing else. It does not choose workers, retry, decide whether an answer is
complete, or time the gaps between events: `dispatch.py` and `answer.py` do that, the same for every transport.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from speedinfer.common.v1.operation_pb2 import Operation
from speedinfer.router.v1.fleet_pb2 import Feature
from speedinfer.router.v1.frame_pb2 import FAILURE_REASON_REJECTED, FAILURE_REASON_TIMEOUT, FailureReason

from services.router.usage import Usage

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class TransportConfig(BaseModel):
    """The part of `runtime_config` that every transport takes. Unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    transport: str
    # Public model name -> the worker's own.
    model_map: dict[str, str] = {}
    # Sent with every request to the worker; secret.
    headers: dict[str, SecretStr] = {}
    connect_timeout_s: Seconds = 5.0
    first_token_timeout_s: Seconds = 120.0
    idle_timeout_s: Seconds = 300.0
    total_timeout_s: Seconds = 3600.0
    # `token`: one token is generated at the check and its usage read; `metadata`: nothing is generated.
    check: Annotated[str, Field(pattern="^(token|metadata)$")] = "token"
    max_concurrency: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    weight: Annotated[float, Field(gt=0)] = 1.0

    def header_refusal(self, name: str, value: str) -> str:
        """Why a header that HTTP can hold cannot be sent to this worker; empty if it can. Never repeats the value."""
        return ""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One request as a transport gets it."""

    request_id: str
    attempt: int
    operation: Operation.ValueType
    # The public name; the transport maps it.
    model: str
    stream: bool
    # The client's body (see GenerateItem.members): names decoded, values as JSON text.
    members: Sequence[tuple[str, bytes]]
    # None: send no limit (embeddings, or the second try after a context-length refusal).
    output_limit: int | None
    # How many choices a complete answer has; embeddings: how many vectors.
    choices: int = 1
    traceparent: str = ""
    tracestate: str = ""
    # The second try after a stale connection: not on another that may be stale as well.
    fresh_connection: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """The worker answered with success; its answer follows. First event of every answer."""

    ignored_fields: tuple[str, ...] = ()


class Chunk(NamedTuple):
    """One JSON text of the worker's answer: an event of a stream, or a whole answer."""

    # What the client gets: usage taken out (streams), the public model name put back. None: the frame held only usage.
    payload: bytes | None
    # Content in the contract's sense: a non-empty content, reasoning, refusal or tool-call delta or text.
    content: bool = False
    # Choice index -> finish_reason, for the choices that this frame finishes.
    finished: Mapping[int, str] = MappingProxyType({})
    # Cumulative counts that this frame reports (per choice where it names one, else of the whole request).
    usage: Usage | None = None
    # The choice that `usage` is about; None: the whole request.
    usage_choice: int | None = None
    # The frame as it came (public model name, its usage object whole), where it carried usage: what the client's usage frame
    # is made from.
    usage_frame: bytes | None = None


@dataclass(frozen=True, slots=True)
class Activity:
    """The worker sent something that is not content for anybody, such as a comment: it is alive."""


@dataclass(frozen=True, slots=True)
class Done:
    """The worker said that the answer is over (`[DONE]`, or Triton's final flag). Usage may still follow."""


Event = Accepted | Chunk | Activity | Done


# The `code` of a refusal because prompt and output bound do not fit into the model's context.
CONTEXT_LENGTH = "context_length_exceeded"
# A kept connection that had gone stale says so at once. A worker that breaks off later may have taken the request.
STALE_WITHIN_S = 1.0


class WorkerFailure(Exception):
    """A worker did not answer as it should. `message` is safe to show; `detail`, in our own words, is for operators only.

    `said` is what the worker said. It may repeat a prompt, so that it goes to who checks a worker, whose prompts are ours, and
    never into a log."""

    def __init__(
        self,
        reason: FailureReason.ValueType,
        message: str,
        *,
        detail: str = "",
        said: str = "",
        try_another: bool = True,
        counts_against_worker: bool = True,
        stale_connection: bool = False,
        connection_lost: bool = False,
        not_allowed: bool = False,
        http_status: int = 0,
        code: str = "",
        param: str = "",
        deadline: str = "",
        retry_after_ms: int = 0,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.detail = detail
        self.said = said
        # Another worker may do better. False where the request itself is at fault.
        self.try_another = try_another
        # False for the client's faults (4xx) and back-pressure (429, 503): the circuit breaker does not count them.
        self.counts_against_worker = counts_against_worker
        # A reused connection turned out within STALE_WITHIN_S to have been closed by the worker: once more, same worker.
        self.stale_connection = stale_connection
        # The connection broke, and nothing was said: an answer that was already complete stays so.
        self.connection_lost = connection_lost
        # The worker's name leads only to addresses that no worker may have: a matter of its registration, not of its health.
        self.not_allowed = not_allowed
        self.http_status = http_status
        self.code = code
        self.param = param
        self.deadline = deadline
        self.retry_after_ms = retry_after_ms
        # The worker takes no request without an output limit, so that there is no asking once more without it.
        self.limit_demanded = False

    @property
    def nothing_was_begun(self) -> bool:
        """The worker did nothing for the request, which it may get once more at once, in the same place."""
        if self.stale_connection:
            return True
        return self.reason == FAILURE_REASON_REJECTED and self.code == CONTEXT_LENGTH and not self.limit_demanded

    @property
    def for_operators(self) -> str:
        """All that is known, for the answer to an operator who checks a worker."""
        return ": ".join(part for part in (self.detail, self.said) if part) or self.message


def connect_timed_out(seconds: float, detail: str = "") -> WorkerFailure:
    """The worker did not take the connection in time; counted here and not by dispatch, since only a transport connects."""
    text = f"the worker could not be connected to within {seconds:g} s (connect deadline)"
    return WorkerFailure(FAILURE_REASON_TIMEOUT, text, detail=detail, deadline="connect")


# Why a worker cannot serve now; what everybody may see of it.
CONNECT = "connect"
TIMEOUT = "timeout"
NOT_READY = "not_ready"
MISCONFIGURED = "misconfigured"
INVALID_RESPONSE = "invalid_response"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of a probe or a check."""

    # Empty: good. Else one of the words above; MISCONFIGURED means that it answers but is registered wrongly.
    error: str = ""
    # The full text, for operators.
    detail: str = ""
    warnings: tuple[str, ...] = ()
    # `name: finding` lines of a check, for operators.
    findings: tuple[str, ...] = ()


class Transport(Protocol):
    """One worker, spoken to in its own protocol. Made once per registration; its connections are its own."""

    @property
    def end_wait_s(self) -> float:
        """How long an answer that nobody waits for is read on before it is dropped, so that one which ends just then may do so
        by itself: there are servers that do not survive the two together. Well under a second."""

    @property
    def features(self) -> frozenset[Feature.ValueType]:
        """What requests may ask of the worker, as far as the last check showed."""

    async def check(self) -> Finding:
        """Look at everything that the registration claims (and generate one token unless `check` is `metadata`).

        Learns what `generate` needs to know (names, types, capabilities). Never raises for what a worker does."""

    async def probe(self) -> Finding:
        """The cheap look: is it up and ready? Never raises for what a worker does."""

    @property
    def counts_tokens(self) -> bool:
        """Whether the worker can be asked how many tokens a prompt has."""

    async def count(self, dispatch: Dispatch) -> int | None:
        """How many tokens the worker makes of the prompt of a request that is not sent; None if it cannot be asked about such a
        one. WorkerFailure if its answer is no count. Says nothing of the worker's health."""

    def generate(self, dispatch: Dispatch) -> AsyncIterator[Event]:
        """Send one request and yield its answer. Raises WorkerFailure. Closing the iterator drops the worker's work:
        at once where its protocol allows it."""

    async def close(self) -> None:
        """Close the connections, once no answer is being read any more."""
