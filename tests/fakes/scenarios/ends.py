"""Group E, to begin with: how streams end, well and badly."""

from typing import Any

from tests.fakes import scripts
from tests.fakes.scenario import Answered, Failed, Scenario
from tests.fakes.scripts import Close, HalfClose, Hang, Pause, Reset, Step

_WORDS = ["Hello", ", world"]
_TWO = scripts.usage(12, 2)
_WELL = Answered("Hello, world", 12, 2)
_LOST = Failed("upstream_error", status=502)
_LOST_LATER = Failed("upstream_error", text="Hello")


def _begun(name: str, *rest: Any) -> list[Step]:
    return scripts.stream(
        scripts.delta(name, role="assistant", content=""), scripts.delta(name, content="Hello"), *rest, done=False
    )


def _finish(name: str) -> dict[str, Any]:
    return scripts.delta(name, finish_reason="stop")


def _counts(name: str) -> dict[str, Any]:
    return scripts.frame(name, choices=[], usage=_TWO)


def _breaks(name: str, *rest: Any, outcome: Answered | Failed = _LOST_LATER) -> Scenario:
    """After the first word."""
    return Scenario(name, ("E1",), _begun(name, *rest), outcome)


def _before(name: str, *steps: Step, outcome: Failed = _LOST, stream: bool = True) -> Scenario:
    """Before any word."""
    return Scenario(name, ("E1",), steps, outcome, stream=stream)


def _all(name: str, *rest: Step, done: bool = False, last_chunk: bool = False) -> Scenario:
    """After everything that counts was said: it takes nothing back."""
    steps = scripts.chat_stream(name, _WORDS, _TWO, done=done, last_chunk=last_chunk)
    return Scenario(name, ("E1",), [*steps, *rest], _WELL)


def _gave_up(reason: str) -> list[Scenario]:
    """A worker's own word for a failure in the place of a reason to finish."""
    stream, early, whole = f"gave-up-{reason}", f"gave-up-{reason}-first", f"gave-up-{reason}-whole"
    end = scripts.delta(early, finish_reason=reason)
    return [
        _breaks(
            stream,
            scripts.delta(stream, finish_reason=reason),
            _counts(stream),
            scripts.DONE,
            outcome=Failed("upstream_error", text="Hello", finish_reason=reason),
        ),
        Scenario(early, ("E1",), scripts.stream(scripts.delta(early, role="assistant"), end, _counts(early)), _LOST),
        Scenario(
            whole,
            ("E1",),
            [scripts.json_answer(scripts.chat_whole(whole, "Hello", _TWO, reason))],
            _LOST,
            stream=False,
        ),
    ]


def _finished(reason: str) -> Scenario:
    name = f"finished-{reason}"
    steps = _begun(name, scripts.delta(name, finish_reason=reason), scripts.frame(name, choices=[], usage=_TWO))
    return Scenario(name, ("E1",), steps, Answered("Hello", 12, 2, finish_reason=reason))


def _whole(name: str, choices: Any, outcome: Answered | Failed = _LOST) -> Scenario:
    value = {**scripts.chat_whole(name, "", _TWO), "choices": choices}
    return Scenario(name, ("E1",), [scripts.json_answer(value)], outcome, stream=False)


def _head_only(name: str, *rest: Step) -> Scenario:
    return _before(name, scripts.SSE_HEAD, *rest)


def _role(name: str) -> bytes:
    return scripts.event(scripts.delta(name, role="assistant", content=""))


_HELLO = {"role": "assistant", "content": "Hello"}

SCENARIOS = (
    _all("done-absent", scripts.LAST_CHUNK),
    _all("left-open", Hang(), done=True),
    _all("left-open-without-done", Hang()),
    _all("reset-after-done", Reset(), done=True),
    _all("reset-after-usage", Reset()),
    _all("closed-after-usage", Close()),
    _all("closed-after-done", Close(), done=True),
    _all("half-closed-after-done", HalfClose(), Hang(), done=True, last_chunk=True),
    _before("reset-first", Reset()),
    _before("reset-first-whole", Reset(), stream=False),
    _before("closed-first", Close()),
    _before("half-closed-first", HalfClose(), Hang()),
    _before("cut-in-the-head", b"HTTP/1.1 200 OK\r\nContent-Ty", Close()),
    _head_only("reset-after-head", Reset()),
    _head_only("closed-after-head", Close()),
    _head_only("half-closed-after-head", HalfClose(), Hang()),
    _head_only("reset-after-role", _role("reset-after-role"), Reset()),
    _head_only("closed-after-role", _role("closed-after-role"), Close()),
    _head_only("comments-then-closed", scripts.chunk(b": wait\n\n"), Close()),
    _head_only("nothing-at-all", scripts.LAST_CHUNK),
    _head_only("done-at-once", scripts.event(scripts.DONE), scripts.LAST_CHUNK),
    _head_only("role-then-done", _role("role-then-done"), scripts.event(scripts.DONE), scripts.LAST_CHUNK),
    Scenario("usage-and-nothing-else", ("E1",), scripts.stream(_counts("usage-and-nothing-else")), _LOST),
    _breaks("reset-later", Reset()),
    _breaks("closed-later", Close()),
    _breaks("half-closed-later", HalfClose(), Hang()),
    _breaks("reset-in-a-chunk", b"40\r\ndata: {", Reset()),
    _breaks("closed-in-a-chunk", b"40\r\ndata: {", Close()),
    _breaks("ended-later"),
    _breaks("ended-in-an-event", scripts.chunk(b'data: {"choices":[{"index":0,"finish_reason":"stop"')),
    _breaks("done-without-finish", scripts.DONE),
    _breaks("usage-without-finish", _counts("usage-without-finish"), scripts.DONE),
    _breaks("usage-then-reset", _counts("usage-then-reset"), Reset()),
    _breaks("finish-null", scripts.delta("finish-null"), _counts("finish-null"), scripts.DONE),
    _breaks("finish-empty", scripts.delta("finish-empty", finish_reason=""), _counts("finish-empty"), scripts.DONE),
    _breaks(
        "reset-before-usage",
        _finish("reset-before-usage"),
        Reset(),
        outcome=Failed("upstream_error", text="Hello", finish_reason="stop"),
    ),
    _breaks(
        "closed-before-usage",
        _finish("closed-before-usage"),
        Close(),
        outcome=Failed("upstream_error", text="Hello", finish_reason="stop"),
    ),
    *(scenario for reason in ("abort", "cancelled", "timeout", "error") for scenario in _gave_up(reason)),
    *(_finished(reason) for reason in ("length", "content_filter", "tool_calls", "something_new")),
    Scenario(
        "finish-on-the-last-word",
        ("E1",),
        scripts.stream(
            scripts.delta("finish-on-the-last-word", finish_reason="stop", content="Hello"),
            _counts("finish-on-the-last-word"),
        ),
        Answered("Hello", 12, 2),
    ),
    Scenario(
        "finish-twice",
        ("E1",),
        scripts.stream(
            scripts.delta("finish-twice", content="Hello"), *[_finish("finish-twice")] * 2, _counts("finish-twice")
        ),
        Answered("Hello", 12, 2),
    ),
    Scenario("no-text", ("E1",), scripts.chat_stream("no-text", [], scripts.usage(12, 0)), Answered("", 12, 0)),
    _whole("whole-no-text", [{"index": 0, "message": {"content": ""}, "finish_reason": "stop"}], Answered("", 12, 2)),
    _whole("whole-unfinished", [{"index": 0, "message": _HELLO, "finish_reason": None}]),
    _whole("whole-no-choices", []),
    _whole("whole-choice-no-object", ["Hello"], Failed("invalid_upstream_response", status=502, no_retry=True)),
    Scenario(
        "whole-one-choice-of-two",
        ("E1",),
        [scripts.json_answer(scripts.chat_whole("whole-one-choice-of-two", "Hello", _TWO))],
        _LOST,
        stream=False,
        request={"n": 2},
    ),
    Scenario(
        "first-token-late",
        ("E1",),
        [scripts.SSE_HEAD, _role("first-token-late"), Hang()],
        Failed("upstream_timeout", status=504, says=("first token",)),
        config={"first_token_timeout_s": 0.2},
    ),
    Scenario(
        "silent-later",
        ("E1",),
        [*_begun("silent-later")[:-1], Hang()],
        Failed("upstream_timeout", text="Hello", says=("idle",)),
        config={"idle_timeout_s": 0.2},
    ),
    # What a worker goes on sending after a complete answer holds up nobody, however long it does.
    *(
        Scenario(
            name,
            ("E1",),
            [
                *_begun(name, _finish(name), _counts(name))[:-1],
                *[step for _ in range(200) for step in (Pause(0.05), more)],
                Hang(),
            ],
            Answered("Hello", 12, 2),
            config={"total_timeout_s": 5},
        )
        for name, more in (
            ("complete-then-comments", scripts.chunk(b": ping\n\n")),
            ("complete-then-empty-deltas", scripts.event(scripts.delta("complete-then-empty-deltas"))),
        )
    ),
    # Counts that came before the finish are the worker's last word where nothing follows.
    *(
        Scenario(
            name,
            ("E1",),
            scripts.stream(
                scripts.delta(name, content="Hello") | {"usage": _TWO},
                _finish(name),
                last,
                done=False,
                last_chunk=False,
            ),
            Answered("Hello", 12, 2),
            config={"idle_timeout_s": 0.2},
        )
        for name, last in (("counted-then-reset", Reset()), ("counted-then-silent", Hang()))
    ),
)
