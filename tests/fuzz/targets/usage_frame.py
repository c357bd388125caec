"""Promise: what the edge writes of usage is one event whose JSON says what was charged, to nine places, and otherwise what the
worker said; and a whole answer keeps every other byte.
"""

import json
from decimal import Decimal
from typing import Any

from speedinfer.common.v1.operation_pb2 import Operation
from speedinfer.common.v1.usage_pb2 import Usage

from services.edge import sse, usage_frame
from tests.fuzz.choices import Choices
from tests.fuzz.oracles import counts, event_stream, json_text

INSTRUMENTED = ("services.edge.usage_frame", "services.edge.sse", "services.edge.json_object", "services.common.money")
OPERATIONS = (Operation.OPERATION_CHAT_COMPLETION, Operation.OPERATION_COMPLETION)
EMPTY = ({"delta": {}}, {"text": ""})
MAX_LINE = 1_000_000


def check(data: bytes) -> None:
    """What was charged, then the worker's JSON: bytes as they stand or an object that is built."""
    choices = Choices(data)
    usage = Usage(prompt_tokens=choices.below(40))
    if choices.flag():
        usage.completion_tokens = choices.pick((0, 5, counts.LARGEST))
    if choices.flag():
        usage.cached_prompt_tokens = choices.below(50)
    cost = choices.pick((None, 0, 1, 5_400, 8_603_760, 999_999_999, 10**9, 10**18 + 1, 2**63 - 1))
    which, asked = choices.below(2), choices.flag()
    raw = choices.flag()
    text = choices.rest() if raw else _built(choices).encode("utf-8", "surrogatepass")
    try:
        parsed = json_text.value(text)
    except ValueError:
        parsed = None
    try:
        frame = usage_frame.client_frame(text, usage, cost, OPERATIONS[which], asked=asked)
        whole = usage_frame.whole_answer(text, usage, cost)
    except ValueError:
        assert not isinstance(parsed, dict), "an object was refused"
        return
    if not isinstance(parsed, dict):
        # The router lets no such text through; that nothing else is raised is all that is asked.
        return
    _check_frame(frame, parsed, usage, cost, which, asked)
    _check_whole(whole, text, usage, cost)


def _built(choices: Choices) -> str:
    members: list[tuple[str, Any]] = []
    while choices.more and len(members) < 8:
        name = choices.pick(("usage", "choices", "id", "model", "x", "", "object"))
        if name == "usage" and choices.below(4):
            value = counts.made(choices)
            if isinstance(value, dict) and choices.flag():
                value |= {"cost": choices.number(), "x": choices.value()}
            members.append((name, value))
        else:
            nested = {"usage": {"prompt_tokens": 1}, "t": '"usage":{}'}
            members.append((name, choices.pick((choices.value(), nested, "half \ud83d", [nested]))))
    return choices.object_text(members)


def _check_frame(frame: bytes, parsed: Any, usage: Usage, cost: int | None, which: int, asked: bool) -> None:
    written = sse.encode([frame])
    events = event_stream.read(written, MAX_LINE)
    assert len(events) == 1, "not one event"
    name, data = events[0]
    assert name == b""
    assert data == frame.replace(b"\n", b" ").replace(b"\r", b" ")
    shown = json_text.value(data)
    assert {n: v for n, v in shown.items() if n not in ("usage", "choices")} == {
        n: v for n, v in parsed.items() if n not in ("usage", "choices")
    }
    assert shown["choices"] == ([] if asked else [{"index": 0, **EMPTY[which], "finish_reason": None}])
    _check_usage(dict(json_text.members(data))["usage"], usage, cost)


def _check_whole(whole: bytes, text: bytes, usage: Usage, cost: int | None) -> None:
    shown, before = json_text.members(whole), json_text.members(text)
    _check_usage(dict(shown)["usage"], usage, cost)
    if _is_plain(text, before):
        assert [each for each in shown if each[0] != "usage"] == [each for each in before if each[0] != "usage"]
    else:
        # Half a surrogate pair, or a name that stands twice: the same values, perhaps written anew.
        kept, old = json_text.value(whole), json_text.value(text)
        kept.pop("usage")
        old.pop("usage", None)
        assert kept == old


def _is_plain(text: bytes, members: list[tuple[str, str]]) -> bool:
    return json_text.is_unicode(json_text.value(text)) and len(dict(members)) == len(members)


def _check_usage(written: str, usage: Usage, cost: int | None) -> None:
    shown = json.loads(written, parse_float=Decimal)
    assert shown["prompt_tokens"] == usage.prompt_tokens
    completion = usage.completion_tokens if usage.HasField("completion_tokens") else 0
    assert shown["total_tokens"] == usage.prompt_tokens + completion
    if usage.HasField("completion_tokens"):
        assert shown["completion_tokens"] == completion
    if cost is None:
        assert "cost" not in shown
        return
    assert isinstance(shown["cost"], Decimal)
    assert shown["cost"] == Decimal(cost) / 10**9
    assert -shown["cost"].as_tuple().exponent == 9, "not nine places"
