"""Group E, first half: how streams end, well and badly."""

from typing import Any

from tests.fakes import scripts
from tests.fakes.scenario import Answered, Failed, Scenario
from tests.fakes.scripts import Close, Hang, Reset

_WORDS = ["Hello", ", world"]
_TWO = scripts.usage(12, 2)
_WELL = Answered("Hello, world", 12, 2)


def _begun(name: str, *rest: Any) -> list[scripts.Step]:
    return scripts.stream(
        scripts.delta(name, role="assistant", content=""), scripts.delta(name, content="Hello"), *rest
    )


SCENARIOS = (
    Scenario("done-absent", ("E1",), scripts.chat_stream("done-absent", _WORDS, _TWO, done=False), _WELL),
    Scenario("left-open", ("E1",), [*scripts.chat_stream("left-open", _WORDS, _TWO, last_chunk=False), Hang()], _WELL),
    Scenario("reset-first", ("E1",), [Reset()], Failed("upstream_error", status=502)),
    Scenario("reset-later", ("E1",), _begun("reset-later", Reset()), Failed("upstream_error", text="Hello")),
    Scenario("closed-later", ("E1",), _begun("closed-later", Close()), Failed("upstream_error", text="Hello")),
)
