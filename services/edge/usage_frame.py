"""The usage that a client sees: the last frame of a stream, and the usage object of a whole answer. Pure.

Invariant: the counts in it are those that were charged. Everything else in the worker's usage object stays as the worker
wrote it. `cost` is the charge in USD, a JSON number with nine decimals; it is left out where billing has not answered, since
nobody else knows it.
"""

import re

import orjson
from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION, OPERATION_COMPLETION, Operation
from speedinfer.common.v1.usage_pb2 import Usage

from services.common import json_members, money
from services.edge import json_object

_EMPTY_CHOICE = {
    OPERATION_CHAT_COMPLETION: b'[{"index":0,"delta":{},"finish_reason":null}]',
    OPERATION_COMPLETION: b'[{"index":0,"text":"","finish_reason":null}]',
}
_OBJECT = {
    OPERATION_CHAT_COMPLETION: "chat.completion.chunk",
    OPERATION_COMPLETION: "text_completion",
}
_DETAILS = ("prompt_tokens_details", "completion_tokens_details")
_BEFORE_USAGE = re.compile(rb'"usage"\s*:\s*\Z')


def client_frame(
    frame: bytes, usage: Usage, cost_nanos: int | None, operation: Operation.ValueType, *, asked: bool
) -> bytes:
    """The stream's usage frame, made from the worker's. Without choices if the client asked for usage, else with one empty
    choice, because common client loops read `choices[0]`. ValueError if `frame` is no JSON object."""
    members = json_object.members_of(frame)
    members["choices"] = b"[]" if asked else _EMPTY_CHOICE[operation]
    members["usage"] = usage_object(members.get("usage", b"{}"), usage, cost_nanos)
    return json_object.join(members)


def bare_frame(request_id: str, model: str, created_s: int, operation: Operation.ValueType) -> bytes:
    """A frame to make the usage frame from, for an answer that came without any."""
    return orjson.dumps({"id": request_id, "object": _OBJECT[operation], "created": created_s, "model": model})


def whole_answer(body: bytes, usage: Usage, cost_nanos: int | None) -> bytes:
    """A whole answer with the cost in its usage object and every other byte as it was. ValueError if it is no object."""
    members = json_object.members_of(body)
    old = members.get("usage", b"")
    new = usage_object(old if old.startswith(b"{") else b"{}", usage, cost_nanos)
    # The parser does not say where a member stands. The name is looked for from the end, and the place is right if the
    # result reads as it should. A name that stands there twice may be the same object's, which then gets one of them.
    at = body.rfind(old) if old and body.count(b'"usage"') == 1 else -1
    if at >= 0 and _BEFORE_USAGE.search(body, max(0, at - 64), at):
        spliced = body[:at] + new + body[at + len(old) :]
        if json_object.members_of(spliced).get("usage") == new:
            return spliced
    return json_members.replace(body, {"usage": new})


def usage_object(text: bytes, usage: Usage, cost_nanos: int | None) -> bytes:
    """The worker's usage object with the charged counts, a total and the cost."""
    try:
        members = json_object.members_of(text)
    except ValueError:
        members = {}
    counts = {"prompt_tokens": usage.prompt_tokens}
    if usage.HasField("completion_tokens"):
        counts["completion_tokens"] = usage.completion_tokens
    counts["total_tokens"] = sum(counts.values())
    members |= {name: str(count).encode() for name, count in counts.items()}
    details = members.get("prompt_tokens_details", b"")
    if usage.HasField("cached_prompt_tokens") and details.startswith(b"{"):
        inner = json_object.members_of(details)
        cached = str(min(usage.cached_prompt_tokens, usage.prompt_tokens)).encode()
        if inner.get("cached_tokens") != cached:
            inner["cached_tokens"] = cached
            members["prompt_tokens_details"] = json_object.join(inner)
    for name in _DETAILS:
        # What is no object is no details: libraries that read them stumble over it.
        if not members.get(name, b"{").startswith((b"{", b"null")):
            del members[name]
    # A worker's own idea of cost is not ours.
    members.pop("cost", None)
    if cost_nanos is not None:
        members["cost"] = money.format_usd(cost_nanos).encode()
    return json_object.join(members)
