"""Group U: every shape in which a worker reports what it used."""

from typing import Any

from tests.fakes import scripts
from tests.fakes.scenario import Answered, Failed, Scenario

_WORDS = ["Hello", ", world"]
_TWO = scripts.usage(12, 2)


def _null(name: str) -> list[scripts.Step]:
    frames: list[dict[str, Any]] = [{**scripts.delta(name, content=word), "usage": None} for word in _WORDS]
    end = {**scripts.delta(name, finish_reason="stop"), "usage": None}
    return scripts.stream(*frames, end, scripts.frame(name, choices=None, usage=_TWO))


def _cumulative(name: str) -> list[scripts.Step]:
    frames = [
        {**scripts.delta(name, content=f"{number} "), "usage": scripts.usage(10, number)} for number in range(1, 6)
    ]
    return scripts.stream(*frames, {**scripts.delta(name, finish_reason="stop"), "usage": scripts.usage(10, 5)})


SCENARIOS = (
    Scenario("usage-null", ("U1", "U4"), _null("usage-null"), Answered("Hello, world", 12, 2)),
    Scenario("usage-cumulative", ("U2",), _cumulative("usage-cumulative"), Answered("1 2 3 4 5 ", 10, 5)),
    Scenario(
        "usage-missing",
        ("U9",),
        scripts.chat_stream("usage-missing", _WORDS, None),
        Failed("usage_missing", text="Hello, world", finish_reason="stop"),
    ),
    Scenario(
        "usage-missing-whole",
        ("U9",),
        [scripts.json_answer(scripts.chat_whole("usage-missing-whole", "Hello", None))],
        Failed("usage_missing", status=502, no_retry=True),
        stream=False,
    ),
)
