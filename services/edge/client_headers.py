"""What the edge takes from a client's headers and what it says in its own. Pure.

Nothing that a client sends becomes a header of ours unless it was checked: an id is visible ASCII of bounded length, trace
context has its W3C form.
"""

import re
from collections.abc import Iterable, Mapping

from speedinfer.billing.v1.reservation_pb2 import LimitState

from services.edge.openai_errors import Refused, invalid

MAX_ID_LENGTH = 512
MAX_IDEMPOTENCY_KEY_LENGTH = 255
MAX_TRACESTATE_LENGTH = 512
MAX_LISTED_NAME = 64
MAX_LISTED_NAMES = 16
_VISIBLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def bearer(headers: Mapping[str, str]) -> str:
    """The credential of an Authorization header, or an empty string."""
    scheme, _, credential = headers.get("authorization", "").partition(" ")
    return credential.strip() if scheme.lower() == "bearer" else ""


def client_request_id(headers: Mapping[str, str]) -> str:
    """The client's own id of the request, or an empty string where there is none that can be repeated."""
    for name in ("x-client-request-id", "x-request-id"):
        value = headers.get(name, "")
        if value:
            return value if len(value) <= MAX_ID_LENGTH and _VISIBLE.fullmatch(value) else ""
    return ""


def idempotency_key(headers: Mapping[str, str]) -> str:
    """The Idempotency-Key, or an empty string. Refused (400) if it is no short visible text."""
    value = headers.get("idempotency-key", "")
    if value and (len(value) > MAX_IDEMPOTENCY_KEY_LENGTH or not _VISIBLE.fullmatch(value)):
        message = f"'Idempotency-Key' must be at most {MAX_IDEMPOTENCY_KEY_LENGTH} visible ASCII characters."
        raise Refused(invalid(message, "Idempotency-Key"))
    return value


def trace(headers: Mapping[str, str]) -> tuple[str, str]:
    """(traceparent, tracestate), both empty where the first is not well-formed."""
    parent = headers.get("traceparent", "")
    if not _TRACEPARENT.fullmatch(parent):
        return "", ""
    state = headers.get("tracestate", "")
    return parent, state if len(state) <= MAX_TRACESTATE_LENGTH and _VISIBLE.fullmatch(state) else ""


def listed(names: Iterable[str]) -> str:
    """Member names as a header's value, and not more of them than clients read. None is left out in silence: what a header
    cannot hold is escaped as JSON does it, and a long name is cut and ends with `...`."""
    all_names = list(names)
    value = ", ".join(map(_listed, all_names[:MAX_LISTED_NAMES]))
    return value if len(all_names) <= MAX_LISTED_NAMES else f"{value}, ..."


def _listed(name: str) -> str:
    if not name:
        return '""'
    shown = ""
    for place, letter in enumerate(name[:MAX_LISTED_NAME]):
        is_plain = "\x21" <= letter <= "\x7e" or (letter == " " and 0 < place < len(name) - 1)
        part = letter if is_plain and letter not in ',\\"' else _escaped(letter)
        if len(shown) + len(part) > MAX_LISTED_NAME:
            return f"{shown}..."
        shown += part
    return shown if len(name) <= MAX_LISTED_NAME else f"{shown}..."


def _escaped(letter: str) -> str:
    return "".join(f"\\u{unit:04x}" for unit in memoryview(letter.encode("utf-16-le", "surrogatepass")).cast("H"))


def rate_limits(state: LimitState) -> dict[str, str]:
    """The x-ratelimit headers of the limits that the key has."""
    headers = {}
    reset = span(state.reset_ms)
    if state.HasField("requests_limit"):
        headers["x-ratelimit-limit-requests"] = str(state.requests_limit)
        headers["x-ratelimit-remaining-requests"] = str(state.requests_remaining)
        headers["x-ratelimit-reset-requests"] = reset
    if state.HasField("tokens_limit"):
        headers["x-ratelimit-limit-tokens"] = str(state.tokens_limit)
        headers["x-ratelimit-remaining-tokens"] = str(state.tokens_remaining)
        headers["x-ratelimit-reset-tokens"] = reset
    return headers


def span(milliseconds: int) -> str:
    """A time as OpenAI's headers write it: `12ms`, `1s`, `1.5s`, `6m0s`."""
    if milliseconds < 1000:
        return f"{max(milliseconds, 0)}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    seconds, thousandths = divmod(rest, 1000)
    fraction = f".{thousandths:03d}".rstrip("0") if thousandths else ""
    return f"{minutes}m{seconds}{fraction}s" if minutes else f"{seconds}{fraction}s"
