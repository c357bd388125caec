"""Every scenario through the real edge, router and billing: what the client reads, and what it pays."""

import json
from typing import Any

import httpx
import pytest

from tests.fakes.scenario import Answered, Failed, Scenario
from tests.fakes.scenarios import table
from tests.harness.sse import Stream, stream
from tests.harness.stage import Customer, Stage


@pytest.mark.parametrize("scenario", table.ALL.values(), ids=lambda each: "-".join((*each.rows, each.name)))
async def test_scenario(scenario: Scenario, stage: Stage, customer: Customer) -> None:
    stage.play(scenario)
    seen = await _ask(stage, customer, scenario)
    if isinstance(scenario.outcome, Answered):
        _assert_answered(seen, scenario, scenario.outcome)
    else:
        _assert_failed(seen, scenario.outcome)
    stage.assert_charged(customer, scenario)


async def _ask(stage: Stage, customer: Customer, scenario: Scenario) -> Stream:
    headers = {"authorization": f"Bearer {customer.key}"}
    async with httpx.AsyncClient(base_url=stage.product.base_url, headers=headers, timeout=60) as http:
        return await stream(http, f"/{scenario.route}", stage.body(scenario))


def _assert_answered(seen: Stream, scenario: Scenario, outcome: Answered) -> None:
    assert seen.status == 200, seen.payloads
    usage: dict[str, Any] | None
    if scenario.stream:
        assert seen.done
        assert seen.error is None
        text, usage = seen.content, seen.usage
        assert _reasons(seen)[-1:] == [outcome.finish_reason]
    else:
        answer = json.loads(seen.payloads[0])
        choice = answer["choices"][0]
        text, usage = choice.get("text") or choice["message"]["content"], answer["usage"]
        assert choice["finish_reason"] == outcome.finish_reason
    assert text == outcome.text
    assert usage is not None
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (outcome.prompt, outcome.completion)


def _assert_failed(seen: Stream, outcome: Failed) -> None:
    if outcome.status is None:
        assert seen.status == 200
        assert seen.content == outcome.text
        assert not seen.done
        assert _reasons(seen) == ([outcome.finish_reason] if outcome.finish_reason else [])
    else:
        assert seen.status == outcome.status, seen.payloads
        assert (seen.headers.get("x-should-retry") == "false") is outcome.no_retry
    error = seen.error
    assert error is not None
    assert set(error) == {"message", "type", "param", "code"}
    assert outcome.code in (error["code"], error["type"])
    for said in outcome.says:
        assert said in error["message"]
    for hidden in outcome.hides:
        assert hidden not in json.dumps(error)


def _reasons(seen: Stream) -> list[str]:
    choices = [choice for frame in seen.frames for choice in frame.get("choices") or ()]
    return [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
