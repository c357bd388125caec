"""SDKs do not hammer: what no other attempt can mend is asked for once by clients with their own number of retries.

Each counts the HTTP requests that its library makes.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import httpx2
import pytest
from openai import OpenAI

from tests.fakes.scenario import Failed, Scenario
from tests.fakes.scenarios import table
from tests.harness.stage import Stage
from tests.sdk import langchain_openai_chat, openai_python
from tests.sdk.openai_node import NodeSdk
from tests.sdk.openai_python import TIMEOUT_S
from tests.sdk.purse import Purse
from tests.sdk.seen import Seen

WHOLE = table.ALL["whole"]
# One of each code that SDKs would otherwise take for a passing failure.
FAILED = [table.ALL["usage-missing-whole"], table.ALL["not-json"], table.ALL["whole-empty"]]


@dataclass(frozen=True)
class Asked:
    """What a client needs to ask as programs do that set nothing."""

    stage: Stage
    node: NodeSdk
    key: str
    scenario: Scenario
    headers: Mapping[str, str]


@contextmanager
def _counting() -> Iterator[tuple[httpx2.Client, list[httpx2.Request]]]:
    requests: list[httpx2.Request] = []
    with httpx2.Client(timeout=TIMEOUT_S, event_hooks={"request": [requests.append]}) as http:
        yield http, requests


def _python(asked: Asked) -> Seen:
    with _counting() as (http, requests):
        client = OpenAI(
            base_url=asked.stage.product.base_url, api_key=asked.key, http_client=http, default_headers=asked.headers
        )
        seen = openai_python.read(client, asked.scenario.route, asked.stage.body(asked.scenario))
    seen.attempts = len(requests)
    return seen


def _node(asked: Asked) -> Seen:
    body = asked.stage.body(asked.scenario)
    return asked.node.read(asked.key, asked.scenario.route, body, max_retries=None, headers=asked.headers)


def _langchain(asked: Asked) -> Seen:
    body = asked.stage.body(asked.scenario)
    with _counting() as (http, requests):
        model = langchain_openai_chat.chat_model(
            asked.stage.product.base_url, asked.key, body, http, max_retries=None, default_headers=asked.headers
        )
        seen = langchain_openai_chat.read(model, body)
    seen.attempts = len(requests)
    return seen


Client = Callable[[Asked], Seen]
each_client = pytest.mark.parametrize("client", [_python, _node, _langchain], ids=["python", "node", "langchain"])


@each_client
@pytest.mark.parametrize("scenario", FAILED, ids=lambda each: each.name)
def test_an_answer_that_cannot_be_billed_is_asked_for_once(
    scenario: Scenario, client: Client, stage: Stage, purse: Purse, node_sdk: NodeSdk
) -> None:
    stage.play(scenario)
    with purse.pays(scenario) as key:
        seen = client(Asked(stage, node_sdk, key, scenario, {}))
    assert isinstance(scenario.outcome, Failed)
    assert seen.refusal is not None
    assert (seen.refusal.status, seen.refusal.code) == (502, scenario.outcome.code)
    assert seen.attempts == 1
    assert len(stage.received()) == 1


@each_client
def test_an_empty_account_asks_once(client: Client, stage: Stage, node_sdk: NodeSdk) -> None:
    stage.play(WHOLE)
    key = stage.product.key(stage.product.account("0.000000001"))
    seen = client(Asked(stage, node_sdk, key, WHOLE, {}))
    assert seen.refusal is not None
    assert (seen.refusal.status, seen.refusal.code) == (402, "insufficient_credit")
    assert seen.attempts == 1
    assert stage.received() == []


@each_client
def test_a_key_that_was_charged_is_asked_for_once(
    client: Client, stage: Stage, purse: Purse, node_sdk: NodeSdk, request: pytest.FixtureRequest
) -> None:
    stage.play(WHOLE)
    with purse.pays(WHOLE) as key:
        asked = Asked(stage, node_sdk, key, WHOLE, {"Idempotency-Key": request.node.name})
        first, second = client(asked), client(asked)
    assert first.refusal is None
    assert second.refusal is not None
    assert (second.refusal.status, second.refusal.code) == (409, "duplicate_request")
    assert (first.attempts, second.attempts) == (1, 1)
    assert len(stage.received()) == 1


def test_what_may_pass_is_asked_for_again(stage: Stage, purse: Purse, node_sdk: NodeSdk) -> None:
    """The counts above would say nothing if SDKs never tried again. One that backs off is enough."""
    scenario = table.ALL["reset-first-whole"]
    stage.play(scenario)
    with purse.pays(scenario) as key:
        seen = node_sdk.read(key, scenario.route, stage.body(scenario), max_retries=1)
    assert seen.refusal is not None
    assert seen.refusal.status == 502
    assert seen.attempts == 2
    assert len(stage.received()) >= 2
