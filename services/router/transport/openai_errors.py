"""A worker's refusals and errors, in every shape that servers of the OpenAI API use. Pure; the OpenAI transport imports it.

Known shapes: `{"error": {"message", "type", "param", "code"}}`, `{"error": "text"}`, `{"object": "error", "message", ...}`,
`{"message"}`, `{"errors": [...]}` and `{"detail": "text" | [{"loc", "msg"}] | {...}}`, any of them also in a list, and as the
body of a status bare text. A text of the worker's reaches the client only where the client is at fault, and then as
`safe_text.py` lets it be seen.
"""

import re
from typing import Any

from speedinfer.router.v1.frame_pb2 import (
    FAILURE_REASON_INVALID_RESPONSE,
    FAILURE_REASON_OVERLOADED,
    FAILURE_REASON_REJECTED,
    FAILURE_REASON_UPSTREAM,
)

from services.common.json_members import NotJson, parse, unmarked
from services.router.safe_text import PLAIN, SafeText
from services.router.transport.context_length import is_too_long
from services.router.transport.openai_error_shape import is_error
from services.router.transport.port import CONTEXT_LENGTH, WorkerFailure

MAX_RETRY_AFTER_MS = 60_000

# Errors within errors: how deep a text is looked for.
_DEEPEST = 5
_PASS_THROUGH = frozenset({400, 413, 422})
_BACK_PRESSURE = frozenset({408, 429, 503})


def from_status(status: int, body: bytes, retry_after: str | None = None, safe: SafeText = PLAIN) -> WorkerFailure:
    """What an HTTP answer other than a success means. `body` is its (bounded) body."""
    value = _value(body)
    return _failure(status, _bare_text(body) if value is None else value, retry_after, safe)


def from_frame(value: Any, first: bool, safe: SafeText = PLAIN) -> WorkerFailure | None:
    """The failure that a parsed frame (or a whole answer with a success status) speaks of; None if it is no error.

    `first`: nothing came before it, so that a numeric code in it stands for the status that the worker could not send."""
    return _from_error(value, first, safe) if is_error(value) else None


def from_event(data: bytes, first: bool, safe: SafeText = PLAIN) -> WorkerFailure:
    """The failure that an event named `error` is, whatever it holds."""
    value = _value(data)
    return _from_error(value if isinstance(value, dict) else {}, first, safe)


def _from_error(value: dict[str, Any], first: bool, safe: SafeText) -> WorkerFailure:
    body = _inner(value)
    status = _number(body.get("code")) or _number(value.get("code")) or _number(body.get("status"))
    if first and status:
        return _failure(status, value, None, safe)
    return WorkerFailure(
        FAILURE_REASON_UPSTREAM, "the worker reported an error while it was answering", detail="error frame"
    )


def not_honoured(name: str, runtime: str) -> WorkerFailure:
    """The request has a field that the worker's runtime does not know, and that is not to be left out."""
    return WorkerFailure(
        FAILURE_REASON_REJECTED,
        f"{name!r} is not supported by the runtime of this model's worker ({runtime})",
        detail=f"{name} is not known to {runtime}",
        try_another=False,
        counts_against_worker=False,
        http_status=400,
        param=name,
    )


def _failure(status: int, value: Any, retry_after: str | None, safe: SafeText) -> WorkerFailure:
    if status in _PASS_THROUGH or status == 501:
        message, param, code = _reason(value, safe)
        if not code and is_too_long(message):
            code = CONTEXT_LENGTH
        return WorkerFailure(
            FAILURE_REASON_REJECTED,
            message or "the worker refused the request",
            detail=f"status {status}",
            try_another=False,
            counts_against_worker=False,
            http_status=400 if status == 501 else status,
            code=code,
            param=param,
        )
    if status in _BACK_PRESSURE:
        return WorkerFailure(
            FAILURE_REASON_OVERLOADED,
            "the worker is overloaded",
            detail=f"status {status}",
            counts_against_worker=False,
            retry_after_ms=_milliseconds(retry_after),
        )
    if status < 300:
        # It may well have done the work, but not as was asked.
        return WorkerFailure(
            FAILURE_REASON_INVALID_RESPONSE,
            f"the worker answered with status {status} where only 200 is an answer",
            detail=f"status {status}",
        )
    if status < 400:
        return WorkerFailure(
            FAILURE_REASON_UPSTREAM,
            f"the worker sends the gateway elsewhere (status {status}), and redirects are not followed;"
            " its operator has to look at its registration",
            detail=f"status {status}",
            counts_against_worker=False,
        )
    if status < 500:
        # The gateway's address, path or credentials for this worker are wrong: not the client's fault, nor a broken worker.
        return WorkerFailure(
            FAILURE_REASON_UPSTREAM,
            "the worker does not accept the gateway's requests; its operator has to look at its registration",
            detail=f"status {status}",
            counts_against_worker=False,
        )
    return WorkerFailure(FAILURE_REASON_UPSTREAM, "the worker failed to answer the request", detail=f"status {status}")


def _inner(value: dict[str, Any]) -> dict[str, Any]:
    """The error that a body holds: gateways before a worker put its errors into their own."""
    inner = value
    for _ in range(_DEEPEST):
        error = inner.get("error")
        if not isinstance(error, dict) or (inner is not value and _text(inner)):
            break
        inner = error
    return inner


def _text(error: dict[str, Any]) -> str:
    texts = (error.get("message"), error.get("msg"), error.get("error"))
    return next((text for text in texts if isinstance(text, str)), "")


def _value(body: bytes) -> Any:
    body = unmarked(body)
    try:
        return parse(body)
    except NotJson:
        pass
    try:
        body.decode()
    except UnicodeDecodeError:
        # Older servers write their own language in its old characters; a wrong letter is better than no reason.
        try:
            return parse(body.decode("latin-1").encode())
        except NotJson:
            return None
    return None


def _bare_text(body: bytes) -> str | None:
    """The body of a refusal that is plain text. None for a page, for bytes, and for JSON that broke off."""
    try:
        text = unmarked(body).decode().strip()
    except UnicodeDecodeError:
        return None
    return None if text.startswith(("<", "{", "[")) or not text.isprintable() else text


def _reason(value: Any, safe: SafeText, depth: int = _DEEPEST) -> tuple[str, str, str]:
    """Message, param and code of an error body; empty where it has none."""
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, str):
        return safe(value), "", ""
    if not isinstance(value, dict) or depth == 0:
        return "", "", ""
    inner = _inner(value)
    detail = value.get("detail")
    if inner is value and isinstance(detail, dict):
        return _reason(detail if "error" not in detail else {"error": detail["error"]}, safe, depth - 1)
    if inner is value and isinstance(value.get("errors"), list):
        return _reason([each for each in value["errors"] if isinstance(each, dict | str)], safe, depth - 1)
    param, code = inner.get("param"), inner.get("code")
    message = _text(inner) or (value["error"] if isinstance(value.get("error"), str) else "")
    detail = detail or inner.get("detail")
    if not message and detail:
        message, place = _detail(detail)
        param = param or place
    if not message:
        for name in ("message", "msg", "error", "errors", "detail"):
            if isinstance(inner.get(name), dict | list):
                found = _reason(inner[name], safe, depth - 1)
                if found[0]:
                    return found
    return (
        safe(message),
        safe(param, 200) if isinstance(param, str) else "",
        code if isinstance(code, str) and re.fullmatch(r"[A-Za-z][\w.-]{0,99}", code) and safe(code) == code else "",
    )


def _detail(detail: Any) -> tuple[str, str]:
    """Text and place of FastAPI's `detail`."""
    if isinstance(detail, str):
        return detail, ""
    if not isinstance(detail, list):
        return "", ""
    texts: list[str] = []
    places: list[str] = []
    for problem in detail:
        if isinstance(problem, dict) and isinstance(problem.get("msg"), str):
            location = problem.get("loc")
            parts = [str(part) for part in location if part != "body"] if isinstance(location, list) else []
            places.append(".".join(parts))
            texts.append(f"{places[-1]}: {problem['msg']}" if parts else problem["msg"])
    return "; ".join(texts), next((place for place in places if place), "")


def _number(code: Any) -> int | None:
    if isinstance(code, str) and code.isascii() and code.isdigit() and len(code) == 3:
        code = int(code)
    return code if type(code) is int and 400 <= code <= 599 else None


def _milliseconds(retry_after: str | None) -> int:
    """A Retry-After in whole seconds; the form with a date is not worth its clock."""
    if retry_after and retry_after.isascii() and retry_after.isdigit():
        return min(int(retry_after[:6]) * 1000, MAX_RETRY_AFTER_MS)
    return 0
