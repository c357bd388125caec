"""What Triton's refusals mean: from a status and its text to a WorkerFailure. Pure; imported by the Triton transport.

Invariant: nothing of a worker's inside (tracebacks, file names, addresses) is in `message`. Only a refusal that is about
the client's own request is passed on in its own words, as `safe_text.py` lets them be seen.
"""

import re
from typing import TypedDict

from speedinfer.router.v1 import frame_pb2

from services.router.safe_text import PLAIN, SafeText
from services.router.transport.context_length import is_too_long
from services.router.transport.port import CONTEXT_LENGTH, WorkerFailure

MAX_TEXT = 500


class _Own(TypedDict):
    """What operators get of a refusal."""

    detail: str
    said: str


# The message by which a check tells that a worker is down from that it failed.
UNREACHABLE = "the connection to the worker failed"

# HTTP statuses of Triton's front as the gRPC codes they were made from.
HTTP_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "UNAVAILABLE",
    413: "TOO_LARGE",
    422: "INVALID_ARGUMENT",
    429: "UNAVAILABLE",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
}
# Our registration, our credentials or our address are wrong, or what the model declares has changed since the check.
_OPERATORS = frozenset({"NOT_FOUND", "UNIMPLEMENTED", "UNAUTHENTICATED", "PERMISSION_DENIED", "FAILED_PRECONDITION"})
_ABOUT_TENSORS = re.compile(
    r"unexpected inference (in|out)put|unexpected (shape|datatype|size)|missing required input|expected number of inputs"
    r"|expected \d+ inputs but got|data-?type is|unknown model|batch-size|got unexpected byte size|inference input"
    r"|does ?n[o']t support models with decoupled|decoupled (mode|transaction)|byte size .* doesn't match",
    re.IGNORECASE,
)
_QUEUE = re.compile(
    r"exceeds? maximum queue size|\bqueue\b.{0,20}\bfull\b|request timeout expired|too many requests", re.IGNORECASE
)
# An error inside a gRPC stream comes without a code (docs/decisions/0005-triton.md), so its words have to tell whether the
# request is at fault: they say what a value must be, and nothing that sounds like a breakdown.
_ABOUT_REQUEST = re.compile(
    r"\b(must|should|may) (be|have|not|contain)\b|\binvalid (value|argument|parameter|request|prompt|input)"
    r"|\b(not supported|unsupported|not allowed|out of (range|bounds?)|too (long|large|many|short|small)|is required)\b",
    re.IGNORECASE,
)
_BREAKDOWN = re.compile(
    r"fail|exception|traceback|cuda|memory|cache|license|internal|executor|assert|nullptr|crash|broken|decoupled mode",
    re.IGNORECASE,
)
_REQUEST_ID = re.compile(r"^\s*\[request id: [^\]]*\]\s*")


def clean(text: str, safe: SafeText = PLAIN) -> str:
    """A worker's text in one line, without its inside; may be empty."""
    return " ".join(safe(_REQUEST_ID.sub("", text)).split())[:MAX_TEXT].strip(" ,:;")


def refused(code: str, text: str, safe: SafeText = PLAIN) -> WorkerFailure:
    """What the server, or the model in it, said. `code` is a gRPC status name, empty where only a text came."""
    words = clean(text, safe)
    own: _Own = {"detail": code or "error without a code", "said": words}
    if is_too_long(words) and code in ("", "INVALID_ARGUMENT", "INTERNAL", "OUT_OF_RANGE"):
        return rejected(words, code=CONTEXT_LENGTH, **own)
    full = not code and bool(_QUEUE.search(words))
    theirs = code in ("INVALID_ARGUMENT", "OUT_OF_RANGE") or (
        not code and bool(_ABOUT_REQUEST.search(words)) and not _BREAKDOWN.search(text)
    )
    if theirs and not full and not _ABOUT_TENSORS.search(words):
        return rejected(words or "the worker refused the request", **own)
    if code == "TOO_LARGE" or (code == "RESOURCE_EXHAUSTED" and "larger than max" in words):
        return rejected("the request is larger than the worker takes", http_status=413, **own)
    if code in ("UNAVAILABLE", "RESOURCE_EXHAUSTED") or full:
        return WorkerFailure(
            frame_pb2.FAILURE_REASON_OVERLOADED,
            "the worker cannot take more requests now",
            **own,
            counts_against_worker=False,
        )
    if code in _OPERATORS or code == "INVALID_ARGUMENT" or (not code and _ABOUT_TENSORS.search(words)):
        return WorkerFailure(frame_pb2.FAILURE_REASON_UPSTREAM, "the worker is not set up for this request", **own)
    return WorkerFailure(frame_pb2.FAILURE_REASON_UPSTREAM, "the worker failed", **own)


def rejected(
    message: str, *, param: str = "", code: str = "", http_status: int = 400, detail: str = "", said: str = ""
) -> WorkerFailure:
    """The request itself is at fault."""
    return WorkerFailure(
        frame_pb2.FAILURE_REASON_REJECTED,
        message,
        detail=detail,
        said=said,
        try_another=False,
        counts_against_worker=False,
        http_status=http_status,
        code=code,
        param=param,
    )


def unreachable(detail: str, *, not_allowed: bool = False) -> WorkerFailure:
    """No connection, or it broke."""
    return WorkerFailure(
        frame_pb2.FAILURE_REASON_UPSTREAM, UNREACHABLE, detail=detail, connection_lost=True, not_allowed=not_allowed
    )


def cut_off(detail: str) -> WorkerFailure:
    """The answer stopped, and nothing said that this was its end. What was complete by then stays so."""
    return WorkerFailure(
        frame_pb2.FAILURE_REASON_UPSTREAM,
        "the worker's answer ended before it was finished",
        detail=detail,
        connection_lost=True,
    )


def invalid_response(detail: str) -> WorkerFailure:
    """The answer is not what Triton's protocol says."""
    return WorkerFailure(frame_pb2.FAILURE_REASON_INVALID_RESPONSE, "the worker's answer cannot be read", detail=detail)


def answer_too_large(limit_bytes: int) -> WorkerFailure:
    """The answer is over our bound."""
    return WorkerFailure(
        frame_pb2.FAILURE_REASON_ANSWER_TOO_LARGE,
        "the worker's answer is larger than the gateway reads",
        detail=f"over {limit_bytes} bytes",
        try_another=False,
    )
