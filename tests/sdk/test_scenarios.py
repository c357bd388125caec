"""Every scenario as each client's own library reads it: curl, both OpenAI SDKs, LangChain's `ChatOpenAI`; and what it costs.

A well-ended scenario gives its text, its reason to finish and its counts; of a failed one the library raises the class that
fits, with our code, and nothing is charged.

curl reads every scenario. What a library makes of an answer follows from the answer's bytes; so where those are the very bytes
of an earlier scenario, which all SDKs have read as they should, the SDKs are not asked again.
"""

import asyncio

import pytest

from tests.fakes.scenario import Answered, Scenario
from tests.fakes.scenarios import table
from tests.harness.stage import Stage
from tests.sdk.pasted_curl import assert_ends, curl
from tests.sdk.purse import Purse
from tests.sdk.readers import LANGCHAIN, LANGCHAIN_USAGE, SDKS, Readers, can_ask
from tests.sdk.seen import assert_read

# SDK -> scenarios that the gateway relays as it should and that the library cannot read, each with the reason.
_LANGCHAIN_STREAMS = {
    "tool-delta-object": "pydantic refuses `arguments` that are an object in LangChain's chunk of a tool call",
    "finish-twice": "LangChain joins the texts of all reasons to finish: `stopstop`",
    "usage-details-list": "LangChain takes `prompt_tokens_details` for an object: AttributeError",
}
UNREADABLE: dict[str, dict[str, str]] = {
    LANGCHAIN: {
        **_LANGCHAIN_STREAMS,
        "usage-details-list-whole": "LangChain takes `prompt_tokens_details` for an object: AttributeError",
        "whole-no-text": "LangChain demands a `role` of a whole message",
    },
    LANGCHAIN_USAGE: _LANGCHAIN_STREAMS,
}
# Scenarios whose failure differs with what comes together in one segment, so that many clients at once do not see one thing.
BY_TIMING = {
    "length-too-short": "bytes beyond the declared length spoil the answer if they come with it: 502, or an error event",
}


@pytest.fixture(scope="module")
def read_already() -> set[object]:
    """The answers that all SDKs have read as they should."""
    return set()


@pytest.mark.parametrize("scenario", list(table.ALL.values()), ids=lambda each: each.name)
async def test_scenario(
    scenario: Scenario, stage: Stage, purse: Purse, readers: Readers, read_already: set[object]
) -> None:
    stage.play(scenario)
    with purse.pays(scenario) as key:
        printed = curl(stage.product.base_url, key, scenario.route, stage.body(scenario))
    assert_ends(printed, scenario)
    assert_read(printed.seen, scenario)
    answer = (scenario.route, scenario.stream, scenario.request.get("n"), printed.told)
    if answer in read_already or scenario.name in BY_TIMING:
        return
    names = [name for name in SDKS if can_ask(name, scenario) and scenario.name not in UNREADABLE.get(name, {})]
    at_once = _reads_of_one_play(scenario)
    for at in range(0, len(names), at_once):
        await _read(names[at : at + at_once], scenario, stage, purse, readers)
    read_already.add(answer)


async def _read(names: list[str], scenario: Scenario, stage: Stage, purse: Purse, readers: Readers) -> None:
    if not isinstance(scenario.outcome, Answered):
        stage.play(scenario)
    with purse.pays(scenario, len(names)) as key:
        all_seen = await asyncio.gather(*(readers.read(name, key, scenario) for name in names))
    for name, seen in zip(names, all_seen, strict=True):
        try:
            assert_read(seen, scenario)
        except AssertionError as error:
            error.add_note(f"read by {name}")
            raise


def _reads_of_one_play(scenario: Scenario) -> int:
    """How many may ask before what the router learns of the worker changes what it says; then the worker is registered anew."""
    if isinstance(scenario.outcome, Answered):
        return len(SDKS)
    # It keeps away from a busy worker at once, from one without usage after three answers; five failures open its circuit.
    return {"overloaded": 1, "usage_missing": 3}.get(scenario.outcome.code, 5)


def test_what_cannot_be_read_names_sdks_and_scenarios() -> None:
    """So that no entry outlives its reason."""
    assert set(UNREADABLE) <= set(SDKS)
    assert set(BY_TIMING) <= set(table.ALL)
    for unreadable in UNREADABLE.values():
        assert set(unreadable) <= set(table.ALL)
