"""Group U, first half: where and when a worker says what it used."""

from typing import Any

from tests.fakes import scripts
from tests.fakes.scenario import Answered, Failed, Scenario
from tests.fakes.scripts import Received, Step

_WORDS = ["Hello", ", world"]
_TWO = scripts.usage(12, 2)
_WELL = Answered("Hello, world", 12, 2)
_MISSING = Failed("usage_missing", text="Hello, world", finish_reason="stop")


def _words(name: str) -> list[dict[str, Any]]:
    role = scripts.delta(name, role="assistant", content="")
    return [role, *(scripts.delta(name, content=word) for word in _WORDS)]


def _finish(name: str, **members: Any) -> dict[str, Any]:
    return {**scripts.delta(name, finish_reason="stop"), **members}


def _counts(name: str, **members: Any) -> dict[str, Any]:
    """A frame about usage alone."""
    return {**scripts.frame(name, choices=[], usage=_TWO), **members}


def _streamed(name: str, *rest: Any, rows: tuple[str, ...] = ("U1",), outcome: Answered | Failed = _WELL) -> Scenario:
    """The usual words, and then another end."""
    return Scenario(name, rows, scripts.stream(*_words(name), *rest), outcome)


def _null(name: str) -> Scenario:
    frames = [{**frame, "usage": None} for frame in _words(name)]
    steps = scripts.stream(*frames, _finish(name, usage=None), scripts.frame(name, choices=None, usage=_TWO))
    return Scenario(name, ("U1", "U4"), steps, _WELL)


def _cumulative(name: str, prompt: int, counts: tuple[int, ...], rows: tuple[str, ...] = ("U2",)) -> Scenario:
    """The whole's counts on every frame, each with all that went before."""
    frames = [
        {**scripts.delta(name, content=f"{number} "), "usage": scripts.usage(prompt, number)} for number in counts
    ]
    steps = scripts.stream(*frames, _finish(name, usage=scripts.usage(prompt, counts[-1])))
    return Scenario(name, rows, steps, Answered("".join(f"{number} " for number in counts), prompt, counts[-1]))


def _placed(name: str, place: int) -> Scenario:
    """The counts on one frame of the words, and nowhere else."""
    frames = [*_words(name), _finish(name)]
    frames[place]["usage"] = _TWO
    return Scenario(name, ("U1",), scripts.stream(*frames), _WELL)


def _two_choices(name: str, *rest: Any, outcome: Answered | Failed, rows: tuple[str, ...] = ("U2",)) -> Scenario:
    begun = [scripts.delta(name, index=index, role="assistant", content=f"{index}") for index in (0, 1)]
    return Scenario(name, rows, scripts.stream(*begun, *rest), outcome, request={"n": 2})


def _of_choice(name: str, index: int, completion: int) -> dict[str, Any]:
    """A choice's end, with the counts of that choice."""
    return {**scripts.delta(name, index=index, finish_reason="stop"), "usage": scripts.usage(9, completion)}


def _ends(name: str, *choices: int) -> list[dict[str, Any]]:
    return [scripts.delta(name, index=index, finish_reason="stop") for index in choices]


def _forbids_options(name: str) -> Scenario:
    """A worker that refuses `stream_options`, and reports usage without being asked."""

    def script(request: Received) -> list[Step]:
        if "stream_options" in request.json:
            return [scripts.json_answer({"error": "stream_options: Extra inputs are not permitted"}, 400)]
        return scripts.chat_stream(name, _WORDS, _TWO)

    return Scenario(name, ("U7",), script, _WELL, config={"stream_options": "none"})


def _asked_for_usage(name: str, stream: bool) -> Scenario:
    """A worker that is asked for usage in streams, and refuses the option in anything else."""

    def script(request: Received) -> list[Step]:
        asked = (request.json.get("stream_options") or {}).get("include_usage") is True
        if asked != stream or ("stream_options" in request.json) != stream:
            return [scripts.json_answer({"error": "stream_options: only where stream is true"}, 400)]
        if not stream:
            return [scripts.json_answer(scripts.chat_whole(name, "Hello, world", _TWO))]
        return scripts.chat_stream(name, _WORDS, _TWO)

    return Scenario(name, ("U6", "U7"), script, _WELL, stream=stream)


def _options(name: str, options: dict[str, Any] | None) -> Scenario:
    """A client with its own wish; the worker puts counts on each frame besides."""
    frames = [{**frame, "usage": scripts.usage(12, 1)} for frame in _words(name)]
    steps = scripts.stream(*frames, _finish(name), _counts(name))
    return Scenario(name, ("U6",), steps, _WELL, request={"stream_options": options})


def _extras(name: str) -> Scenario:
    """A usage frame that says more: its own members of usage stay, and what else it says goes on once."""
    counts = {**_TWO, "queue_time": 0.5, "completion_tokens_details": {"reasoning_tokens": 1}, "cost": 99}
    steps = scripts.stream(*_words(name), _finish(name), _counts(name, usage=counts, filters=[{"hate": 0}]))
    relays = ('"queue_time":0.5', '"completion_tokens_details":{"reasoning_tokens":1}', '"filters":[{"hate":0}]')
    return Scenario(name, ("S8",), steps, Answered("Hello, world", 12, 2, relays=relays, drops=('"cost":99',)))


SCENARIOS = (
    _null("usage-null"),
    _cumulative("usage-cumulative", 10, (1, 2, 3, 4, 5)),
    _cumulative("usage-cumulative-to-99", 10, (1, 4, 5, 40, 99)),
    _cumulative("usage-two-events", 64, (13, 20)),
    _cumulative("usage-falling", 64, (20, 13)),
    _streamed(
        "usage-twice", _finish("usage-twice"), _counts("usage-twice", usage=scripts.usage(3, 1)), _counts("usage-twice")
    ),
    _streamed("usage-repeated", _finish("usage-repeated"), *[_counts("usage-repeated")] * 3, rows=("U2",)),
    _streamed("usage-in-finish", _finish("usage-in-finish", usage=_TWO)),
    _placed("usage-on-role-frame", 0),
    _placed("usage-on-content-frame", 2),
    _streamed("usage-before-finish", _counts("usage-before-finish"), _finish("usage-before-finish")),
    _streamed("usage-choices-absent", _finish("usage-choices-absent"), {"usage": _TWO}),
    _streamed("usage-choices-null", _finish("usage-choices-null"), _counts("usage-choices-null", choices=None)),
    _streamed(
        "usage-with-empty-choice",
        _finish("usage-with-empty-choice"),
        _counts("usage-with-empty-choice", choices=[{"index": 0, "delta": {}, "finish_reason": None}]),
    ),
    _streamed("usage-after-done", _finish("usage-after-done"), scripts.DONE, _counts("usage-after-done")),
    _streamed(
        "usage-after-done-again",
        _finish("usage-after-done-again"),
        _counts("usage-after-done-again"),
        scripts.DONE,
        _counts("usage-after-done-again", usage=scripts.usage(900, 900)),
    ),
    _streamed(
        "content-after-done",
        _finish("content-after-done"),
        scripts.DONE,
        {**scripts.delta("content-after-done", content=" and more"), "usage": _TWO},
    ),
    _streamed(
        "usage-null-after",
        _finish("usage-null-after"),
        _counts("usage-null-after"),
        _counts("usage-null-after", usage=None),
        rows=("U4",),
    ),
    _streamed(
        "usage-empty-after",
        _finish("usage-empty-after"),
        _counts("usage-empty-after"),
        _counts("usage-empty-after", usage={}),
        rows=("U4",),
    ),
    _streamed(
        "usage-in-halves",
        _finish("usage-in-halves", usage={"prompt_tokens": 12}),
        _counts("usage-in-halves", usage={"completion_tokens": 2}),
    ),
    _extras("usage-with-extras"),
    Scenario("usage-missing", ("U9",), scripts.chat_stream("usage-missing", _WORDS, None), _MISSING),
    _streamed("usage-null-only", _finish("usage-null-only", usage=None), rows=("U4",), outcome=_MISSING),
    Scenario(
        "usage-missing-whole",
        ("U9",),
        [scripts.json_answer(scripts.chat_whole("usage-missing-whole", "Hello", None))],
        Failed("usage_missing", status=502, no_retry=True),
        stream=False,
    ),
    _two_choices(
        "choices-with-total",
        *_ends("choices-with-total", 0, 1),
        _counts("choices-with-total", usage=scripts.usage(9, 7)),
        outcome=Answered("0", 9, 7),
    ),
    _two_choices(
        "choices-counted-each",
        _of_choice("choices-counted-each", 1, 4),
        _of_choice("choices-counted-each", 0, 3),
        outcome=Answered("0", 9, 7),
    ),
    _two_choices(
        "choices-counted-each-then-total",
        _of_choice("choices-counted-each-then-total", 0, 3),
        _of_choice("choices-counted-each-then-total", 1, 4),
        _counts("choices-counted-each-then-total", usage=scripts.usage(9, 8)),
        outcome=Answered("0", 9, 8),
    ),
    _two_choices(
        "choices-one-counted",
        _of_choice("choices-one-counted", 0, 3),
        *_ends("choices-one-counted", 1),
        outcome=Failed("usage_missing", text="0", finish_reason="stop"),
    ),
    _two_choices(
        "choices-one-unfinished",
        *_ends("choices-one-unfinished", 1),
        _counts("choices-one-unfinished"),
        outcome=Failed("upstream_error", text="0", finish_reason="stop"),
        rows=("E1",),
    ),
    _two_choices(
        "choices-one-finished-twice",
        *_ends("choices-one-finished-twice", 1, 1),
        _counts("choices-one-finished-twice"),
        outcome=Failed("upstream_error", text="0", finish_reason="stop"),
        rows=("E1",),
    ),
    _forbids_options("options-forbidden"),
    _asked_for_usage("options-in-streams", True),
    _asked_for_usage("options-in-streams-only", False),
    _options("options-unset", None),
    _options("options-asked", {"include_usage": True}),
    _options("options-empty", {}),
    _options("options-refused", {"include_usage": False}),
)
