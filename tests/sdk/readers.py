"""The SDKs that read every scenario, under the names by which tests know them; each made once, for one product.

A reader asks with one key and answers with a `Seen`. None tries again by itself: SDKs back off between attempts, and what they
do by default is `test_retries.py`'s.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
from openai import AsyncOpenAI, OpenAI

from tests.fakes.scenario import Scenario
from tests.harness.stage import Stage
from tests.sdk import langchain_openai_chat, openai_python
from tests.sdk.openai_node import NodeSdk
from tests.sdk.openai_python import TIMEOUT_S
from tests.sdk.seen import Seen

PYTHON = "python"
PYTHON_ASYNC = "python-async"
NODE = "node"
# It asks for usage only of OpenAI's own address, unless it is told to.
LANGCHAIN = "langchain"
LANGCHAIN_USAGE = "langchain-stream-usage"


@dataclass(frozen=True)
class Readers:
    """The clients."""

    stage: Stage
    sync: OpenAI
    asynchronous: AsyncOpenAI
    node: NodeSdk
    http: httpx2.Client

    async def read(self, name: str, key: str, scenario: Scenario) -> Seen:
        """What the client of that name makes of the scenario that is played."""
        return await _READERS[name](self, key, scenario)


@asynccontextmanager
async def readers(stage: Stage, node: NodeSdk) -> AsyncIterator[Readers]:
    """Make them, and close them."""
    url = stage.product.base_url
    with (
        OpenAI(base_url=url, api_key="unset", max_retries=0, timeout=TIMEOUT_S) as sync,
        httpx2.Client(timeout=TIMEOUT_S) as http,
    ):
        async with AsyncOpenAI(base_url=url, api_key="unset", max_retries=0, timeout=TIMEOUT_S) as asynchronous:
            yield Readers(stage, sync, asynchronous, node, http)


async def _python(own: Readers, key: str, scenario: Scenario) -> Seen:
    client = own.sync.with_options(api_key=key)
    return await asyncio.to_thread(openai_python.read, client, scenario.route, own.stage.body(scenario))


async def _python_async(own: Readers, key: str, scenario: Scenario) -> Seen:
    client = own.asynchronous.with_options(api_key=key)
    return await openai_python.read_async(client, scenario.route, own.stage.body(scenario))


async def _node(own: Readers, key: str, scenario: Scenario) -> Seen:
    return await asyncio.to_thread(own.node.read, key, scenario.route, own.stage.body(scenario))


async def _langchain(own: Readers, key: str, scenario: Scenario) -> Seen:
    body = own.stage.body(scenario)
    model = langchain_openai_chat.chat_model(own.stage.product.base_url, key, body, own.http)
    return await asyncio.to_thread(langchain_openai_chat.read, model, body)


async def _langchain_usage(own: Readers, key: str, scenario: Scenario) -> Seen:
    body = own.stage.body(scenario)
    model = langchain_openai_chat.chat_model(own.stage.product.base_url, key, body, own.http, stream_usage=True)
    return await asyncio.to_thread(langchain_openai_chat.read, model, body)


_READERS: dict[str, Callable[[Readers, str, Scenario], Awaitable[Seen]]] = {
    PYTHON: _python,
    PYTHON_ASYNC: _python_async,
    NODE: _node,
    LANGCHAIN: _langchain,
    LANGCHAIN_USAGE: _langchain_usage,
}
SDKS = tuple(_READERS)


def can_ask(name: str, scenario: Scenario) -> bool:
    """Whether an SDK has such a request. LangChain has chats only, and refuses a stream of `n` > 1 itself."""
    if name not in (LANGCHAIN, LANGCHAIN_USAGE):
        return True
    if scenario.route != "chat/completions" or (scenario.stream and scenario.request.get("n", 1) != 1):
        return False
    return scenario.stream or name == LANGCHAIN
