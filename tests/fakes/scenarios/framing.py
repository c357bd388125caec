"""Group S: how a stream is cut into lines and events."""

import json
from typing import Any

from tests.fakes import scripts
from tests.fakes.scenario import Answered, Failed, Scenario
from tests.fakes.scripts import Step

_WORDS = ["Hello", ", world"]
_TWO = scripts.usage(12, 2)
_WELL = Answered("Hello, world", 12, 2)
# Three bytes, then four.
_FAR = ["那", "😀!"]
_INVALID = Failed("invalid_upstream_response", status=502, no_retry=True)
_LINE_BOUND = 1024 * 1024


def _payloads(name: str, words: list[str] = _WORDS) -> list[str]:
    """The JSON texts of the usual stream, not escaped, and its `[DONE]`."""
    frames = [scripts.delta(name, role="assistant", content="")]
    frames += [scripts.delta(name, content=word) for word in words]
    frames += [scripts.delta(name, finish_reason="stop"), scripts.frame(name, choices=[], usage=_TWO)]
    return [json.dumps(frame, ensure_ascii=False, separators=(",", ":")) for frame in frames] + [scripts.DONE]


def _text(name: str, before: str = "data: ", after: str = "\n\n", words: list[str] = _WORDS) -> bytes:
    return "".join(f"{before}{payload}{after}" for payload in _payloads(name, words)).encode()


def _sent(data: bytes, size: int = 0) -> list[Step]:
    """The bytes of a stream in chunks of `size`, or in one."""
    size = size or len(data)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return [scripts.SSE_HEAD, *map(scripts.chunk, pieces), scripts.LAST_CHUNK]


def _plain(name: str, before: str = "data: ", after: str = "\n\n", size: int = 0, *rows: str) -> Scenario:
    return Scenario(name, rows, _sent(_text(name, before, after), size), _WELL)


def _between(name: str, what: str, *rows: str) -> Scenario:
    """Something before, between and after the events."""
    data = what.encode() + _text(name).replace(b"\n\n", b"\n\n" + what.encode())
    return Scenario(name, rows, _sent(data), _WELL)


def _far(name: str, size: int) -> Scenario:
    return Scenario(name, ("S2",), _sent(_text(name, words=_FAR), size), Answered("那😀!", 12, 2))


def _several_lines(name: str, end: str, size: int = 0) -> Scenario:
    """Each frame on three `data` lines, cut where JSON may have white space."""
    events = []
    for payload in _payloads(name):
        lines = payload.replace(',"', ',\n"', 2).split("\n")
        events.append("".join(f"data: {line}{end}" for line in lines) + end)
    return Scenario(name, ("S5",), _sent("".join(events).encode(), size), _WELL)


def _end(name: str, tail: str, outcome: Answered | Failed = _WELL, *rows: str) -> Scenario:
    """The usual stream with another end in the place of `data: [DONE]` and its blank line."""
    data = _text(name).removesuffix(b"data: [DONE]\n\n") + tail.encode()
    return Scenario(name, rows, _sent(data), outcome)


def _relayed(name: str, delta: dict[str, Any], relays: str, text: str = "", reason: str = "stop") -> Scenario:
    """A delta of an odd shape between two usual frames: it goes on as it came."""
    steps = scripts.stream(
        scripts.delta(name, role="assistant", content=""),
        scripts.delta(name, **delta),
        scripts.delta(name, finish_reason=reason),
        scripts.frame(name, choices=[], usage=_TWO),
    )
    return Scenario(name, ("S8",), steps, Answered(text, 12, 2, finish_reason=reason, relays=(relays,)))


def _text_as_it_came(name: str) -> Scenario:
    """Numbers, escapes, white space, doubled and unknown keys that a re-encoding would change."""
    odd = (
        '{"id" : "x\\u0041", "x":[1.0, 1e2, -0, 12345678901234567890], "x": {"b":1,"a":null},  "choices": '
        '[{"index":0,"delta":{"content":"H\\u0069","z":1.50},"finish_reason":null,"logprobs":null}]}'
    )
    steps = scripts.stream(odd, scripts.delta(name, finish_reason="stop"), scripts.frame(name, choices=[], usage=_TWO))
    return Scenario(name, ("S8",), steps, Answered("Hi", 12, 2, relays=(odd,)))


def _too_long(name: str, data: bytes, outcome: Failed, *before: Any) -> Scenario:
    steps: list[Step] = [*scripts.stream(*before, done=False, last_chunk=False), scripts.chunk(b"data: ")]
    steps += [scripts.chunk(data[at : at + 65536]) for at in range(0, len(data), 65536)]
    return Scenario(name, ("S7",), [*steps, scripts.LAST_CHUNK], outcome)


def _large(name: str, length: int) -> Scenario:
    text = "x" * length
    steps = scripts.chat_stream(name, [text], scripts.usage(12, 1))
    return Scenario(name, ("S7",), steps, Answered(text, 12, 1))


_TOOL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}

SCENARIOS = (
    Scenario("good", (), scripts.chat_stream("good", _WORDS, _TWO), _WELL),
    _plain("cut-everywhere", "data: ", "\n\n", 1, "S1"),
    _plain("cut-in-sevens", "data: ", "\n\n", 7, "S1"),
    _plain("crlf", "data: ", "\r\n\r\n", 0, "S1"),
    _plain("crlf-cut-everywhere", "data: ", "\r\n\r\n", 1, "S1"),
    _plain("cr", "data: ", "\r\r", 0, "S1"),
    _plain("cr-cut-everywhere", "data: ", "\r\r", 1, "S1"),
    _plain("line-ends-mixed", "data: ", "\r\n\n", 1, "S1"),
    _plain("lf-then-crlf", "data: ", "\n\r\n", 0, "S1"),
    _far("far-characters", 0),
    _far("far-characters-cut-everywhere", 1),
    _far("far-characters-cut-in-fives", 5),
    Scenario("bom", ("S1",), _sent(b"\xef\xbb\xbf" + _text("bom")), _WELL),
    Scenario("bom-cut-everywhere", ("S1",), _sent(b"\xef\xbb\xbf" + _text("bom-cut-everywhere"), 1), _WELL),
    _plain("no-space", "data:", "\n\n", 0, "S3"),
    _plain("two-spaces", "data:  ", "\n\n", 0, "S3"),
    _plain("space-at-line-end", "data: ", " \n\n", 0, "S3"),
    _between("bare-data", "data:\n\n", "S3"),
    _between("bare-data-without-colon", "data\n\n", "S3"),
    _between("data-of-one-space", "data: \n\n", "S3"),
    _between("empty-events", "\n\n\n\n" * 200, "S3"),
    _between("comments", ": OPENROUTER PROCESSING\n\n", "S5"),
    _between("comments-without-blank-line", ":\n: ping\n", "S5"),
    _between("other-fields", "id: 7\nretry: 3000\nfoo: bar\nfoo\n", "S5"),
    _between("other-fields-of-their-own", "id: 7\n\nretry: 3000\n\nevent: ping\n\n", "S5"),
    _between("field-like-data", "database: {}\ndata-x: 1\nDATA: 2\n", "S5"),
    _plain("event-named-message", "event: message\nid: 1\ndata: ", "\n\n", 0, "S5"),
    _plain("name-after-data", "data: ", "\nevent: chunk\n\n", 0, "S5"),
    _several_lines("several-data-lines", "\n"),
    _several_lines("several-data-lines-cut-everywhere", "\r\n", 1),
    _end("done-with-space", "data: [DONE] \n\n"),
    _end("done-without-space", "data:[DONE]\n\n", _WELL, "S3"),
    _end("done-without-blank-line", "data: [DONE]"),
    _end("done-twice", "data: [DONE]\n\ndata: [DONE]\n\n"),
    _end("done-then-more", f"data: [DONE]\n\ndata: {json.dumps(scripts.delta('x', content='!'))}\n\n"),
    _end("done-then-nonsense", "data: [DONE]\n\ndata: {nonsense\n\n"),
    _end("usage-event-without-blank-line", ""),
    _end("cut-in-the-last-event", 'data: {"id":"chatcmpl'),
    Scenario("no-blank-line-at-all", ("S1",), _sent(_text("no-blank-line-at-all")[:-2]), _WELL),
    Scenario(
        "usage-frame-without-blank-line",
        ("S1",),
        _sent(_text("usage-frame-without-blank-line").removesuffix(b"\n\ndata: [DONE]\n\n")),
        _WELL,
    ),
    Scenario("not-json", ("S1",), scripts.stream("{nonsense"), _INVALID),
    Scenario("not-an-object", ("S1",), scripts.stream("[1]"), _INVALID),
    Scenario(
        "not-json-later",
        ("S1",),
        scripts.stream(scripts.delta("not-json-later", content="Hello"), "{nonsense"),
        Failed("invalid_upstream_response", text="Hello"),
    ),
    Scenario("choices-no-list", ("S8",), scripts.stream(scripts.frame("choices-no-list", choices={"0": {}})), _INVALID),
    _too_long("line-without-end", b"x" * (2 * _LINE_BOUND), _INVALID),
    _too_long(
        "line-without-end-later",
        b"x" * (2 * _LINE_BOUND),
        Failed("invalid_upstream_response", text="Hello"),
        scripts.delta("line-without-end-later", content="Hello"),
    ),
    _too_long("data-lines-without-end", b'"x",\ndata: ' * (_LINE_BOUND // 4), _INVALID),
    _large("frame-at-the-bound", _LINE_BOUND - 1024),
    Scenario(
        "frame-over-the-bound",
        ("S7",),
        scripts.chat_stream("frame-over-the-bound", ["x" * _LINE_BOUND], _TWO),
        _INVALID,
    ),
    _text_as_it_came("text-as-it-came"),
    _relayed("delta-unknown-keys", {"content": "Hi", "reasoning_items": [{"id": "r"}]}, '"reasoning_items":[{', "Hi"),
    _relayed("delta-reasoning", {"reasoning_content": "hm"}, '"reasoning_content":"hm"'),
    _relayed("delta-refusal", {"refusal": "no"}, '"refusal":"no"'),
    _relayed("tool-delta", {"tool_calls": [{"index": 0, **_TOOL}]}, '"arguments":"{}"', reason="tool_calls"),
    _relayed("tool-delta-index-1", {"tool_calls": [{"index": 1, **_TOOL}]}, '"index":1,"id":"c"', reason="tool_calls"),
    _relayed("tool-delta-without-index", {"tool_calls": [_TOOL]}, '"tool_calls":[{"id":"c"', reason="tool_calls"),
    _relayed(
        "tool-delta-object",
        {"tool_calls": [{"index": 0, "id": None, "function": {"name": None, "arguments": {"a": 1}}}]},
        '"function":{"name":null,"arguments":{"a":1}}',
        reason="tool_calls",
    ),
)
