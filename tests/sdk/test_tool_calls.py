"""Tool calls as each SDK puts them together, from a whole answer and from the parts of a stream."""

import dataclasses
import json
from typing import Any

import pytest

from tests.fakes import scripts
from tests.fakes.scenario import Answered, Scenario
from tests.fakes.scenarios import table
from tests.harness.stage import Stage
from tests.sdk import openai_python
from tests.sdk.langchain_openai_chat import chat_model
from tests.sdk.langchain_openai_chat import read as read_langchain
from tests.sdk.purse import Purse
from tests.sdk.readers import Readers
from tests.sdk.seen import Seen, assert_read

MODEL = "good"
CALLS = [("get_weather", {"city": "Zürich"}), ("get_time", {})]
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name, _ in CALLS]


def _call(index: int, arguments: str, **first: Any) -> dict[str, Any]:
    """A part of a call; the first part has its id and name."""
    call = {"index": index, "function": {"arguments": arguments, **({"name": CALLS[index][0]} if first else {})}}
    return scripts.delta(MODEL, tool_calls=[{**call, **first}])


def _streamed() -> list[scripts.Step]:
    return scripts.stream(
        scripts.delta(MODEL, role="assistant", content=None),
        _call(0, "", id="call-0", type="function"),
        _call(0, '{"ci'),
        _call(0, 'ty":"Zürich"}'),
        _call(1, "{}", id="call-1", type="function"),
        scripts.delta(MODEL, finish_reason="tool_calls"),
        scripts.frame(MODEL, choices=[], usage=scripts.usage(12, 9)),
    )


def _whole() -> list[scripts.Step]:
    value = scripts.chat_whole(MODEL, "", scripts.usage(12, 9), "tool_calls")
    value["choices"][0]["message"]["tool_calls"] = [
        {"id": f"call-{index}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for index, (name, arguments) in enumerate(CALLS)
    ]
    return [scripts.json_answer(value)]


@pytest.fixture(params=["stream", "whole"])
def scenario(request: pytest.FixtureRequest, stage: Stage) -> Scenario:
    """Two calls, played under the name of a scenario that the worker lists."""
    stream = request.param == "stream"
    made = dataclasses.replace(
        table.ALL[MODEL],
        script=_streamed() if stream else _whole(),
        outcome=Answered("", 12, 9, finish_reason="tool_calls"),
        stream=stream,
        request={"tools": TOOLS},
    )
    stage.play(made)
    return made


def test_python(scenario: Scenario, stage: Stage, purse: Purse, readers: Readers) -> None:
    with purse.pays(scenario) as key:
        client, body = readers.sync.with_options(api_key=key), stage.body(scenario)
        if scenario.stream:
            seen = openai_python.read_calls(client, body)
        else:
            whole = client.chat.completions.create(**openai_python.arguments(body))
            seen = Seen()
            openai_python.add(seen, whole)
            openai_python.add_calls(seen, whole)
    _assert_called(seen, scenario)


def test_node(scenario: Scenario, stage: Stage, purse: Purse, readers: Readers) -> None:
    with purse.pays(scenario) as key:
        seen = readers.node.read(key, scenario.route, stage.body(scenario), "helper")
    _assert_called(seen, scenario)


def test_langchain(scenario: Scenario, stage: Stage, purse: Purse, readers: Readers) -> None:
    body = stage.body(scenario)
    with purse.pays(scenario) as key:
        seen = read_langchain(chat_model(stage.product.base_url, key, body, readers.http), body)
    _assert_called(seen, scenario)


def _assert_called(seen: Seen, scenario: Scenario) -> None:
    assert_read(seen, scenario)
    assert [(name, json.loads(arguments)) for name, arguments in seen.calls] == CALLS
