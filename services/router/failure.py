"""Failures as the router's callers get them. Pure; dispatch uses it."""

from speedinfer.router.v1 import frame_pb2
from speedinfer.router.v1.fleet_pb2 import FEATURE_UNSPECIFIED, Feature
from speedinfer.router.v1.frame_pb2 import (
    FAILURE_REASON_DRAINING,
    FAILURE_REASON_MODEL_NOT_FOUND,
    FAILURE_REASON_NO_WORKER,
    FAILURE_REASON_OVERLOADED,
    FAILURE_REASON_TIMEOUT,
    FAILURE_REASON_UNSUPPORTED,
)

from services.router.pick import NotPicked, Why
from services.router.transport.port import WorkerFailure

RETRY_AFTER_MS = 1000


def frame(failure: WorkerFailure, worker_id: str, attempts: int) -> frame_pb2.Frame:
    """The last frame of a request that failed."""
    return frame_pb2.Frame(failure=message(failure, worker_id, attempts))


def message(failure: WorkerFailure, worker_id: str, attempts: int) -> frame_pb2.Failure:
    """A failure's wire form."""
    return frame_pb2.Failure(
        reason=failure.reason,
        message=failure.message,
        param=failure.param,
        worker_id=worker_id,
        attempts=attempts,
        retry_after_ms=failure.retry_after_ms,
        http_status=failure.http_status,
        deadline=failure.deadline,
        code=failure.code,
    )


def not_picked(outcome: NotPicked, model: str) -> WorkerFailure:
    """No worker could be given the request."""
    if outcome.why is Why.MODEL_NOT_FOUND:
        return _ours(FAILURE_REASON_MODEL_NOT_FOUND, f"the model {model!r} does not exist")
    if outcome.why is Why.UNSUPPORTED:
        what = f"{outcome.param!r}" if outcome.param else "this kind of request"
        named = "" if outcome.feature == FEATURE_UNSPECIFIED else f" ({_word(outcome.feature)})"
        return WorkerFailure(
            FAILURE_REASON_UNSUPPORTED,
            f"the model {model!r} does not support {what}{named}",
            param=outcome.param,
            try_another=False,
        )
    if outcome.why is Why.OVERLOADED:
        return _ours(FAILURE_REASON_OVERLOADED, "all workers of the model are busy", RETRY_AFTER_MS)
    return _ours(FAILURE_REASON_NO_WORKER, "no worker of the model is available now", RETRY_AFTER_MS)


def timed_out(deadline: str, seconds: float) -> WorkerFailure:
    """One of dispatch's deadlines ran out: `first token`, `idle` or `total`."""
    text = {
        "first token": f"the worker sent no token within {seconds:g} s (first token deadline)",
        "idle": f"the worker sent nothing for {seconds:g} s (idle deadline)",
        "total": f"the request took longer than {seconds:g} s (total deadline)",
    }[deadline]
    return WorkerFailure(
        FAILURE_REASON_TIMEOUT,
        text,
        deadline=deadline,
        try_another=deadline != "total",
        # A long answer is no fault of the worker's.
        counts_against_worker=deadline != "total",
    )


def queue_full() -> WorkerFailure:
    """More requests wait for a place than may."""
    return _ours(FAILURE_REASON_OVERLOADED, "too many requests wait for a worker of the model", RETRY_AFTER_MS)


def waited_in_vain(seconds: float) -> WorkerFailure:
    """No place came free in time."""
    return _ours(FAILURE_REASON_OVERLOADED, f"no worker of the model came free within {seconds:g} s", RETRY_AFTER_MS)


def draining() -> WorkerFailure:
    """The router is going away."""
    return WorkerFailure(
        FAILURE_REASON_DRAINING,
        "the router is shutting down",
        try_another=False,
        counts_against_worker=False,
        retry_after_ms=RETRY_AFTER_MS,
    )


def _ours(reason: frame_pb2.FailureReason.ValueType, message: str, retry_after_ms: int = 0) -> WorkerFailure:
    return WorkerFailure(reason, message, try_another=False, counts_against_worker=False, retry_after_ms=retry_after_ms)


def _word(feature: Feature.ValueType) -> str:
    return Feature.Name(feature).removeprefix("FEATURE_").lower().replace("_", " ")
