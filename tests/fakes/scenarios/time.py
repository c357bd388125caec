"""Group D, what takes no longer than a moment to show: workers that let a deadline pass, each with its own words.

What must not be cut by a deadline takes longer to show; `tests/faults/test_time.py` plays it once.
"""

import itertools
from collections.abc import Iterable

from tests.fakes import scripts
from tests.fakes.scenario import Failed, Scenario
from tests.fakes.scripts import Hang, Pause, Received, Step

_FIRST_TOKEN = Failed("upstream_timeout", status=504, says=("first token deadline", "0.15 s"))
_TOTAL = Failed("upstream_timeout", status=504, says=("total deadline", "0.15 s"), no_retry=True)
_ENOUGH = 100_000


def _no_token(name: str, row: str, *steps: Step) -> Scenario:
    return Scenario(name, (row,), [*steps, Hang()], _FIRST_TOKEN, config={"first_token_timeout_s": 0.15})


def _flood(name: str, what: bytes) -> Scenario:
    """Without a pause, so that there is always something to read."""

    def script(_request: Received) -> Iterable[Step]:
        return itertools.chain([scripts.SSE_HEAD], itertools.repeat(what, _ENOUGH))

    return Scenario(name, ("D6",), script, _FIRST_TOKEN, config={"first_token_timeout_s": 0.15})


def _never_whole(name: str, *steps: Step) -> Scenario:
    return Scenario(name, ("D5",), [*steps, Hang()], _TOTAL, stream=False, config={"total_timeout_s": 0.15})


SCENARIOS = (
    _no_token("no-answer", "T18"),
    _no_token("head-and-nothing", "T18", scripts.SSE_HEAD),
    _no_token("head-in-drops", "D6", *[step for byte in b"HTTP/1.1 200 OK" for step in (bytes([byte]), Pause(0.05))]),
    _flood("comments-without-end", scripts.chunk(b": wait\n\n")),
    # First-token and idle deadlines are of streams; a whole answer has the total one.
    _never_whole("whole-never"),
    _never_whole(
        "whole-in-drops",
        scripts.SSE_HEAD.replace(b"text/event-stream", b"application/json"),
        *[step for _ in range(99) for step in (scripts.chunk(b" "), Pause(0.05))],
    ),
)
