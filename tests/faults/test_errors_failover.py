"""Another worker may take over as long as nothing was written to the client, and only then (E6); both ways, with the charge."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes import scripts
from tests.fakes.scenario import Answered, Failed, Scenario
from tests.fakes.scripts import Close, Received, Reset, Step
from tests.harness.stage import COMPLETION_PRICE, PROMPT_PRICE, Customer, Stage

NAME = "once-more"
MODEL = "acme/once-more"
WORKERS = ("once-more-1", "once-more-2")
ROLE = scripts.delta(NAME, role="assistant", content="")
WORD = scripts.delta(NAME, content="Hello")
ERROR = {"error": {"message": "the engine is tired"}}
WELL = Answered("Hello, world", 12, 2)
FAILED = Failed("upstream_error", status=502, hides=("tired",))
GOOD = scripts.chat_stream(NAME, ["Hello", ", world"], scripts.usage(12, 2))
WHOLE = [scripts.json_answer(scripts.chat_whole(NAME, "Hello, world", scripts.usage(12, 2)))]

# What a worker does that gives the request up before any content.
BEFORE: dict[str, list[Step]] = {
    "error": scripts.stream(ERROR),
    "role, then error": scripts.stream(ROLE, ERROR),
    "role and counts, then error": scripts.stream({**ROLE, "usage": scripts.usage(900, 900)}, ERROR),
    "empty deltas, then error": scripts.stream(ROLE, *[scripts.delta(NAME, content="")] * 50, ERROR),
    "role, then reset": [scripts.SSE_HEAD, scripts.event(ROLE), Reset()],
    "role, then closed": [scripts.SSE_HEAD, scripts.event(ROLE), Close()],
    "role, then nonsense": scripts.stream(ROLE, "{nonsense"),
    "role, then given up": scripts.stream(ROLE, scripts.delta(NAME, finish_reason="abort")),
    "500": [scripts.json_answer(ERROR, 500)],
    "503": [scripts.json_answer(ERROR, 503)],
    "404": [scripts.json_answer(ERROR, 404)],
    "redirect": [scripts.answer(302, b"", Location="/")],
    "code 503": scripts.stream({"error": {"code": 503}}),
}
# What no other worker is asked for: the client's fault, and what was generated already.
LAST: dict[str, tuple[list[Step], Failed]] = {
    "400": ([scripts.json_answer(ERROR, 400)], Failed("invalid_request_error", status=400)),
    "422": ([scripts.json_answer(ERROR, 422)], Failed("invalid_request_error", status=422)),
    "code 400": (
        scripts.stream({"error": {"message": "no", "code": 400}}),
        Failed("invalid_request_error", status=400),
    ),
    "word, then error": (scripts.stream(ROLE, WORD, ERROR), Failed("upstream_error", text="Hello")),
    "word, then reset": ([*scripts.stream(WORD, done=False)[:-1], Reset()], Failed("upstream_error", text="Hello")),
    "usage missing": (
        scripts.chat_stream(NAME, ["Hello"], None),
        Failed("usage_missing", text="Hello", finish_reason="stop"),
    ),
}


@pytest.fixture(scope="module")
def two(stage: Stage) -> Stage:
    stage.product.price(MODEL, PROMPT_PRICE, COMPLETION_PRICE)
    return stage


def in_turn(*turns: list[Step], outcome: Answered | Failed, stream: bool = True) -> Scenario:
    """Whichever worker is asked first plays the first part."""
    left: Iterator[list[Step]] = iter(turns)

    def script(_request: Received) -> list[Step]:
        return next(left)

    return Scenario(NAME, ("E6",), script, outcome, stream=stream)


async def ask(stage: Stage, customer: Customer, scenario: Scenario) -> tuple[int, list[Any]]:
    """The status, and what came: frames and `[DONE]`, or the one answer."""
    stage.play(scenario, model=MODEL, worker_ids=WORKERS)
    seen = await stage.ask(customer, scenario, model=MODEL)
    stage.assert_charged(customer, scenario)
    return seen.status, [payload if payload == "[DONE]" else json.loads(payload) for payload in seen.payloads]


@pytest.mark.parametrize("first", BEFORE)
async def test_another_worker_answers_and_only_it_is_paid(first: str, two: Stage, customer: Customer) -> None:
    status, came = await ask(two, customer, in_turn(BEFORE[first], GOOD, outcome=WELL))
    assert status == 200
    assert came[-1] == "[DONE]"
    texts = [choice["delta"].get("content") for frame in came[:-1] for choice in frame["choices"]]
    assert "".join(text or "" for text in texts) == "Hello, world"
    # Nothing of the first worker's is left, not even its role frame.
    assert [frame for frame in came[:-1] if frame["choices"][0]["delta"].get("role")] == [{**ROLE, "model": MODEL}]
    assert len(two.received()) == 2


@pytest.mark.parametrize("first", ["500", "503", "404", "redirect"])
async def test_a_whole_answer_comes_from_another_worker(first: str, two: Stage, customer: Customer) -> None:
    status, came = await ask(two, customer, in_turn(BEFORE[first], WHOLE, outcome=WELL, stream=False))
    assert (status, came[0]["choices"][0]["message"]["content"]) == (200, "Hello, world")


@pytest.mark.parametrize("first", ["role, then error", "role, then closed", "500"])
@pytest.mark.parametrize("second", ["role, then error", "empty deltas, then error", "redirect"])
async def test_where_both_give_up_nothing_was_begun(first: str, second: str, two: Stage, customer: Customer) -> None:
    status, came = await ask(two, customer, in_turn(BEFORE[first], BEFORE[second], outcome=FAILED))
    assert status == 502
    assert came[0]["error"]["code"] == "upstream_error"
    assert len(two.received()) == 2


@pytest.mark.parametrize("first", LAST)
async def test_no_other_worker_is_asked(first: str, two: Stage, customer: Customer) -> None:
    script, outcome = LAST[first]
    status, came = await ask(two, customer, in_turn(script, GOOD, outcome=outcome))
    assert status == (outcome.status or 200)
    assert "error" in came[-1]
    assert outcome.code in (came[-1]["error"]["code"], came[-1]["error"]["type"])
    assert len(two.received()) == 1
