"""Group S, below the events: how an answer travels over HTTP, well and badly."""

import gzip
import json

from tests.fakes import scripts
from tests.fakes.scenario import Answered, Failed, Scenario
from tests.fakes.scripts import Close, Hang, Pause, Step

_WORDS = ["Hello", ", world"]
_TWO = scripts.usage(12, 2)
_WELL = Answered("Hello, world", 12, 2)
_LOST = Failed("upstream_error", status=502)
_INVALID = Failed("invalid_upstream_response", status=502, no_retry=True)
# So that what follows is read apart from what went before.
_APART = Pause(0.05)
_TYPE = b"Content-Type: text/event-stream\r\n"


def _events(name: str) -> list[Step]:
    """The usual stream's events, each in a chunk of its own, without head and end."""
    return scripts.chat_stream(name, _WORDS, _TWO)[1:-1]


def _bare(name: str) -> bytes:
    """The same without the chunked coding."""
    events = [step for step in _events(name) if isinstance(step, bytes)]
    return b"".join(step.split(b"\r\n", 1)[1].removesuffix(b"\r\n") for step in events)


def _whole_json(name: str) -> bytes:
    return json.dumps(scripts.chat_whole(name, "Hello, world", _TWO)).encode()


def _typed(name: str, kind: str, outcome: Answered | Failed = _WELL) -> Scenario:
    """The usual stream under another type (or under none)."""
    head = scripts.SSE_HEAD.replace(_TYPE, f"Content-Type: {kind}\r\n".encode() if kind else b"")
    return Scenario(name, ("S1",), [head, *_events(name), scripts.LAST_CHUNK], outcome)


def _head(length: int | None = None, version: str = "1.1", kind: str = "text/event-stream", **headers: str) -> bytes:
    lines = [f"HTTP/{version} 200 OK", f"Content-Type: {kind}"]
    lines += [f"Content-Length: {length}"] if length is not None else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def _raw(name: str, *steps: Step, outcome: Answered | Failed = _WELL, stream: bool = True) -> Scenario:
    return Scenario(name, ("S1",), steps, outcome, stream=stream)


def _status(name: str, status: int, outcome: Failed, stream: bool = True, **headers: str) -> Scenario:
    return Scenario(name, ("E5",), [scripts.answer(status, b"", **headers)], outcome, stream=stream)


def _whole(name: str, body: bytes, outcome: Answered | Failed = _WELL, kind: str = "application/json") -> Scenario:
    return Scenario(name, ("S1",), [scripts.answer(200, body, kind)], outcome, stream=False)


def _elsewhere(name: str, status: int, stream: bool = True) -> Scenario:
    outcome = Failed("upstream_error", status=502, hides=("192.0.2.1",))
    return _status(name, status, outcome, stream, Location="http://192.0.2.1:8000/v1")


_BODY = _bare("length-declared")
_GZIP = gzip.compress(_bare("gzip"), mtime=0)
_JSON = _whole_json("whole")
_SHORT = Failed("invalid_upstream_response", status=502, no_retry=True)

SCENARIOS = (
    _typed("type-with-charset", "text/event-stream; charset=utf-8"),
    _typed("type-in-capitals", "Text/Event-Stream"),
    _typed("type-plain", "text/plain"),
    _typed("type-absent", ""),
    _typed("type-json", "application/json", _INVALID),
    _typed("type-html", "text/html", _INVALID),
    _raw("length-declared", _head(len(_BODY)), _BODY),
    _raw("until-close", scripts.SSE_HEAD_UNTIL_CLOSE, _bare("until-close"), Close()),
    _raw("http-1-0", _head(version="1.0"), _bare("http-1-0"), Close()),
    # Read to its end it would never end, and nobody else's turn would come.
    Scenario(
        "continue-without-end",
        ("S7",),
        [*([b"HTTP/1.1 100 Continue\r\n\r\n" * 1000] * 40), Hang()],
        _LOST,
        config={"first_token_timeout_s": 5},
    ),
    _raw("continue-first", b"HTTP/1.1 100 Continue\r\n\r\n", *scripts.chat_stream("continue-first", _WORDS, _TWO)),
    _raw(
        "early-hints-first",
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
        *scripts.chat_stream("early-hints-first", _WORDS, _TWO),
    ),
    _raw(
        "trailers-after",
        scripts.SSE_HEAD,
        *_events("trailers-after"),
        b"0\r\nX-Checksum: 1\r\n\r\n",
    ),
    _raw(
        "chunk-extensions",
        scripts.SSE_HEAD,
        *(b";x=1\r\n".join(bytes(step).split(b"\r\n", 1)) for step in _events("chunk-extensions")),  # type: ignore[arg-type]
        scripts.LAST_CHUNK,
    ),
    _raw("gzip", _head(len(_GZIP), Content_Encoding="gzip"), _GZIP, outcome=_INVALID),
    _raw(
        "gzip-whole",
        scripts.answer(200, gzip.compress(_whole_json("gzip-whole"), mtime=0), Content_Encoding="gzip"),
        outcome=_INVALID,
        stream=False,
    ),
    _raw("deflate-unknown", _head(3, Content_Encoding="br"), b"abc", outcome=_INVALID),
    _raw(
        "encoding-identity", _head(Content_Encoding="identity", Connection="close"), _bare("encoding-identity"), Close()
    ),
    _raw("chunks-broken-first", scripts.SSE_HEAD, b"zz\r\nnonsense\r\n", outcome=_LOST),
    _raw(
        "chunks-broken-later",
        scripts.SSE_HEAD,
        scripts.event(scripts.delta("chunks-broken-later", content="Hello")),
        _APART,
        b"zz\r\nnonsense\r\n",
        outcome=Failed("upstream_error", text="Hello"),
    ),
    _raw("chunks-broken-at-the-end", scripts.SSE_HEAD, *_events("chunks-broken-at-the-end"), _APART, b"zz\r\n"),
    _raw("length-too-long", _head(len(_BODY) + 10), _bare("length-too-long"), Close()),
    _raw(
        "length-too-short",
        _head(len(_bare("length-too-short")) - 200),
        _bare("length-too-short")[:-200],
        _APART,
        _bare("length-too-short")[-200:],
        Close(),
        outcome=Failed("usage_missing", text="Hello, world", finish_reason="stop"),
    ),
    _raw("not-http", b"SSH-2.0-OpenSSH_9.6\r\n\r\n", Close(), outcome=_LOST),
    _status("no-content", 204, _INVALID),
    _status("no-content-whole", 204, _INVALID, stream=False),
    _status("accepted-only", 202, _INVALID),
    _elsewhere("moved", 301),
    _elsewhere("found-whole", 302, stream=False),
    _elsewhere("see-other", 303),
    _elsewhere("temporarily-elsewhere", 307),
    _elsewhere("permanently-elsewhere", 308),
    Scenario(
        "whole-for-a-stream",
        ("S1",),
        [scripts.answer(200, _whole_json("whole-for-a-stream"))],
        _INVALID,
    ),
    Scenario(
        "stream-for-a-whole", ("S1",), scripts.chat_stream("stream-for-a-whole", _WORDS, _TWO), _INVALID, stream=False
    ),
    _whole("whole", _JSON),
    _whole("whole-bom", b"\xef\xbb\xbf" + _whole_json("whole-bom")),
    _whole(
        "whole-with-line-ends", json.dumps(json.loads(_whole_json("whole-with-line-ends")), indent=2).encode() + b"\r\n"
    ),
    _whole("whole-problem-json", _whole_json("whole-problem-json"), kind="application/vnd.api+json; charset=utf-8"),
    _whole("whole-then-garbage", _whole_json("whole-then-garbage") + b"}garbage", _INVALID),
    _whole("whole-twice", _whole_json("whole-twice") * 2, _INVALID),
    _whole("whole-empty", b"", _INVALID),
    _whole("whole-null", b"null", _INVALID),
    _whole("whole-html", b"<html>It works!</html>", _INVALID, "text/html"),
    _whole("whole-nan", _whole_json("whole-nan").replace(b'"index": 0', b'"index": NaN'), _INVALID),
    _whole("whole-without-choices", b'{"id":"a","usage":{"prompt_tokens":1,"completion_tokens":1}}', _INVALID),
    _raw(
        "whole-length-short",
        _head(len(_JSON) - 9, kind="application/json"),
        _JSON[:-9],
        _APART,
        _JSON[-9:],
        Close(),
        outcome=_SHORT,
        stream=False,
    ),
    _raw(
        "whole-length-long", _head(len(_JSON) + 9, kind="application/json"), _JSON, Close(), outcome=_LOST, stream=False
    ),
    _raw("whole-cut", _head(len(_JSON), kind="application/json"), _JSON[:40], Close(), outcome=_LOST, stream=False),
    Scenario(
        "whole-large",
        ("S7",),
        [scripts.json_answer(scripts.chat_whole("whole-large", "x" * 3_000_000, _TWO))],
        Answered("x" * 3_000_000, 12, 2),
        stream=False,
    ),
)
