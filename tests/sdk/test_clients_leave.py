"""Programs that close a stream after the first words: who pays follows from what the worker has counted.

Without counts so far the worker is read on, and its own count is charged; with counts so far it is told to stop, and the last
of them is charged. A program that gave up before any word pays nothing.
"""

import dataclasses
from collections.abc import Awaitable, Callable

import openai
import pytest

from tests.fakes import scripts
from tests.fakes.scenario import Answered, Failed, Scenario
from tests.fakes.scenarios import table
from tests.fakes.scripts import Hang, Pause
from tests.harness.stage import Stage
from tests.harness.until import until
from tests.sdk.langchain_openai_chat import chat_model
from tests.sdk.openai_python import arguments
from tests.sdk.purse import Purse
from tests.sdk.readers import Readers

MODEL = "good"
# Long enough for the client to be gone before the worker goes on; were it not, the charge would be the same.
PAUSE_S = 0.3
GIVES_UP_AFTER_S = 0.3
_BEGIN = (scripts.delta(MODEL, role="assistant", content=""), scripts.delta(MODEL, content="Hello"))

READ_ON = dataclasses.replace(
    table.ALL[MODEL],
    script=scripts.stream(
        *_BEGIN,
        Pause(PAUSE_S),
        scripts.delta(MODEL, content=", world"),
        scripts.delta(MODEL, finish_reason="stop"),
        scripts.frame(MODEL, choices=[], usage=scripts.usage(12, 5)),
    ),
    outcome=Answered("Hello", 12, 5),
    config={"stream_options": "usage"},
)
COUNTED = dataclasses.replace(
    table.ALL[MODEL],
    script=scripts.stream(*({**frame, "usage": scripts.usage(12, 1)} for frame in _BEGIN), Hang()),
    outcome=Answered("Hello", 12, 1),
    config={"stream_options": "continuous"},
)
SILENT = dataclasses.replace(
    table.ALL[MODEL], script=scripts.stream(_BEGIN[0], Hang()), outcome=Failed("upstream_timeout")
)


async def _python(readers: Readers, key: str, scenario: Scenario) -> str:
    with readers.sync.with_options(api_key=key).chat.completions.create(
        **arguments(readers.stage.body(scenario))
    ) as stream:
        return next(text for chunk in stream if (text := chunk.choices[0].delta.content))


async def _python_async(readers: Readers, key: str, scenario: Scenario) -> str:
    client = readers.asynchronous.with_options(api_key=key)
    async with await client.chat.completions.create(**arguments(readers.stage.body(scenario))) as stream:
        async for chunk in stream:
            if text := chunk.choices[0].delta.content:
                return str(text)
    raise AssertionError("no words came")


async def _node(readers: Readers, key: str, scenario: Scenario) -> str:
    return readers.node.read(key, scenario.route, readers.stage.body(scenario), "leave").text


async def _langchain(readers: Readers, key: str, scenario: Scenario) -> str:
    body = readers.stage.body(scenario)
    stream = chat_model(readers.stage.product.base_url, key, body, readers.http).stream(body["messages"])
    text = next(chunk.content for chunk in stream if chunk.content)
    stream.close()  # type: ignore[attr-defined]
    return str(text)


Client = Callable[[Readers, str, Scenario], Awaitable[str]]
CLIENTS = {"python": _python, "python-async": _python_async, "node": _node, "langchain": _langchain}


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.parametrize("scenario", [READ_ON, COUNTED], ids=["read-on", "counted"])
async def test_leaving_after_the_first_words(
    scenario: Scenario, client: Client, stage: Stage, purse: Purse, readers: Readers
) -> None:
    stage.play(scenario)
    with purse.pays(scenario) as key:
        assert await client(readers, key, scenario) == "Hello"
    [request] = stage.received()
    if scenario is COUNTED:
        until(request.disconnected.is_set, "the worker is told to stop")
    else:
        until(request.answered.is_set, "the worker is read to its end")


def test_giving_up_before_any_word(stage: Stage, purse: Purse, readers: Readers) -> None:
    stage.play(SILENT)
    with purse.pays(SILENT) as key, pytest.raises(openai.APITimeoutError):
        readers.sync.with_options(api_key=key, timeout=GIVES_UP_AFTER_S).chat.completions.create(
            **arguments(stage.body(SILENT))
        )
    [request] = stage.received()
    until(request.disconnected.is_set, "the worker is told to stop")
