"""Group U, second half: which numbers are counts, in streams and in whole answers, on every route."""

from typing import Any

from tests.fakes import scripts
from tests.fakes.scenario import Answered, Failed, Scenario
from tests.fakes.scripts import Step

_WORDS = ["Hello", ", world"]
_TWO = scripts.usage(12, 2)
_MAX = 2**31 - 1


def _numbers(prompt: Any, completion: Any, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, **more}


def _details(cached: Any) -> dict[str, Any]:
    return {"prompt_tokens_details": {"cached_tokens": cached}}


# Name -> what stands in the place of usage, where that is no usage.
_NONE: dict[str, Any] = {
    "empty": {},
    "list": [],
    "list-of-usage": [_numbers(12, 2)],
    "string": "12",
    "true": True,
    "number": 14,
    "only-prompt": {"prompt_tokens": 12},
    "only-completion": {"completion_tokens": 2},
    "only-total": {"total_tokens": 14},
    "other-names": {"input_tokens": 12, "output_tokens": 2},
    "prompt-null": _numbers(None, 2),
    "completion-null": _numbers(12, None),
    "negative": _numbers(12, -2),
    "prompt-negative": _numbers(-12, 2),
    "bool": _numbers(12, True),
    "float": _numbers(12.0, 2),
    "fraction": _numbers(12, 2.5),
    "text-number": _numbers("12", 2),
    "object-number": _numbers({"value": 12}, 2),
    "over-the-bound": _numbers(12, _MAX + 1),
    "huge": _numbers(12, 10**30),
    "cached-negative": _numbers(12, 2, **_details(-1)),
    "cached-text": _numbers(12, 2, **_details("4")),
    "cached-float": _numbers(12, 2, **_details(4.0)),
}
# Name -> usage, and what is charged for it: prompt, cached, completion.
_SOME: dict[str, tuple[dict[str, Any], tuple[int, int, int]]] = {
    "without-total": (_numbers(12, 2), (12, 0, 2)),
    "wrong-total": (_numbers(12, 2, total_tokens=99), (12, 0, 2)),
    "zero": (_numbers(0, 0, total_tokens=0), (0, 0, 0)),
    "prompt-zero": (_numbers(0, 2), (0, 0, 2)),
    "completion-zero": (_numbers(12, 0), (12, 0, 0)),
    "cached": (_numbers(12, 2, **_details(8)), (12, 8, 2)),
    "cached-all": (_numbers(12, 2, **_details(12)), (12, 12, 2)),
    "cached-over-prompt": (_numbers(12, 2, **_details(40)), (12, 12, 2)),
    "cached-zero": (_numbers(12, 2, **_details(0)), (12, 0, 2)),
    "cached-null": (_numbers(12, 2, **_details(None)), (12, 0, 2)),
    "details-null": (_numbers(12, 2, prompt_tokens_details=None), (12, 0, 2)),
    "details-empty": (_numbers(12, 2, prompt_tokens_details={}), (12, 0, 2)),
    "details-list": (_numbers(12, 2, prompt_tokens_details=[8]), (12, 0, 2)),
    "more-than-held": (_numbers(500_000, 500_000), (500_000, 0, 500_000)),
}
_ROWS = {"zero": ("U4",), "prompt-zero": ("U5",), "completion-zero": ("U5",), "cached": ("U10",)}


def _whole(name: str, route: str, counts: Any) -> list[Step]:
    value = scripts.chat_whole(name, "Hello, world", None)
    if route == "completions":
        value |= {
            "object": "text_completion",
            "choices": [{"index": 0, "text": "Hello, world", "finish_reason": "stop"}],
        }
    if route == "embeddings":
        data = [{"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}]
        value = {"object": "list", "model": name, "data": data}
    return [scripts.json_answer({**value, "usage": counts})]


def _completion_stream(name: str, *rest: Any) -> list[Step]:
    frames = [
        scripts.frame(name, object="text_completion", choices=[{"index": 0, "text": word, "finish_reason": None}])
        for word in _WORDS
    ]
    end = scripts.frame(name, object="text_completion", choices=[{"index": 0, "text": "", "finish_reason": "stop"}])
    return scripts.stream(*frames, end, *rest)


def _bad_stream(shape: str) -> Scenario:
    name = f"usage-{shape}"
    outcome = Failed("usage_missing", text="Hello, world", finish_reason="stop")
    return Scenario(name, ("U4",), scripts.chat_stream(name, _WORDS, _NONE[shape]), outcome)


def _bad_whole(shape: str, route: str = "chat/completions") -> Scenario:
    name = f"usage-{shape}-whole" if route == "chat/completions" else f"usage-{shape}-{route}"
    outcome = Failed("usage_missing", status=502, no_retry=True)
    return Scenario(name, ("U4",), _whole(name, route, _NONE[shape]), outcome, stream=False, route=route)


def _good(shape: str, stream: bool) -> Scenario:
    counts, (prompt, cached, completion) = _SOME[shape]
    name = f"usage-{shape}" if stream else f"usage-{shape}-whole"
    script = scripts.chat_stream(name, _WORDS, counts) if stream else _whole(name, "chat/completions", counts)
    outcome = Answered("Hello, world", prompt, completion, cached)
    return Scenario(name, _ROWS.get(shape, ("U4",)), script, outcome, stream=stream)


def _embedding(name: str, counts: Any, outcome: Answered | Failed) -> Scenario:
    return Scenario(name, ("U9",), _whole(name, "embeddings", counts), outcome, stream=False, route="embeddings")


def _taken_back(name: str) -> Scenario:
    """A good count, and then one that cannot be: nothing stands in for it."""
    frames = [{**scripts.delta(name, content=word), "usage": _numbers(12, 1)} for word in _WORDS]
    steps = scripts.stream(
        *frames, scripts.delta(name, finish_reason="stop"), scripts.frame(name, choices=[], usage=_numbers(12, -1))
    )
    return Scenario(name, ("U4",), steps, Failed("usage_missing", text="Hello, world", finish_reason="stop"))


SCENARIOS = (
    *(_bad_stream(shape) for shape in _NONE),
    *(
        _bad_whole(shape)
        for shape in ("empty", "list", "string", "only-total", "negative", "bool", "float", "cached-text")
    ),
    *(_bad_whole(shape, "completions") for shape in ("empty", "only-prompt", "text-number")),
    *(_good(shape, stream=True) for shape in _SOME),
    *(_good(shape, stream=False) for shape in _SOME if shape in _ROWS or shape.startswith(("cached-", "details-"))),
    _taken_back("usage-taken-back"),
    Scenario(
        "completions",
        (),
        _completion_stream("completions", scripts.frame("completions", choices=[], usage=_TWO)),
        Answered("Hello, world", 12, 2),
        route="completions",
    ),
    Scenario(
        "completions-null",
        ("U1",),
        _completion_stream("completions-null", {"choices": None, "usage": _TWO}),
        Answered("Hello, world", 12, 2),
        route="completions",
    ),
    Scenario(
        "completions-missing",
        ("U9",),
        _completion_stream("completions-missing"),
        Failed("usage_missing", text="Hello, world", finish_reason="stop"),
        route="completions",
    ),
    Scenario(
        "completions-whole",
        (),
        _whole("completions-whole", "completions", _TWO),
        Answered("Hello, world", 12, 2),
        stream=False,
        route="completions",
    ),
    _embedding("embeddings", {"prompt_tokens": 2, "total_tokens": 2}, Answered("", 2, 0)),
    _embedding("embeddings-with-completion", scripts.usage(2, 0), Answered("", 2, 0)),
    _embedding("embeddings-cached", {"prompt_tokens": 4, **_details(2)}, Answered("", 4, 0, 2)),
    _embedding("embeddings-zero", {"prompt_tokens": 0, "total_tokens": 0}, Answered("", 0, 0)),
    *(
        _embedding(f"embeddings-{shape}", _NONE[shape], Failed("usage_missing", status=502, no_retry=True))
        for shape in ("empty", "only-total", "prompt-null", "prompt-negative")
    ),
)
