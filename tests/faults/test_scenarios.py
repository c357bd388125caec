"""Every scenario through the real edge, router and billing: what the client reads, and what it pays."""

import json
from decimal import Decimal
from typing import Any

import pytest

from tests.fakes.scenario import Answered, Failed, Scenario
from tests.fakes.scenarios import table
from tests.harness.sse import Stream
from tests.harness.stage import Customer, Stage


@pytest.mark.parametrize("scenario", table.ALL.values(), ids=lambda each: "-".join((*each.rows, each.name)))
async def test_scenario(scenario: Scenario, stage: Stage, customer: Customer) -> None:
    stage.play(scenario)
    seen = await stage.ask(customer, scenario)
    if isinstance(scenario.outcome, Answered):
        _assert_answered(seen, scenario, scenario.outcome)
    else:
        _assert_failed(seen, scenario.outcome)
    stage.assert_charged(customer, scenario)


def _assert_answered(seen: Stream, scenario: Scenario, outcome: Answered) -> None:
    assert seen.status == 200, seen.payloads
    if scenario.stream:
        assert seen.done
        assert seen.error is None
        assert _text(seen) == outcome.text
        assert _reasons(seen)[-1:] == [outcome.finish_reason]
        usage = _streamed_usage(seen, scenario)
    else:
        answer = json.loads(seen.payloads[0])
        usage = answer["usage"]
        if scenario.route != "embeddings":
            choice = answer["choices"][0]
            assert (choice["text"] if "text" in choice else choice["message"]["content"]) == outcome.text
            assert choice["finish_reason"] == outcome.finish_reason
    for piece in outcome.relays:
        assert any(piece in payload for payload in seen.payloads), piece
    for piece in outcome.drops:
        assert not any(piece in payload for payload in seen.payloads), piece
    if usage is not None:
        assert (usage["prompt_tokens"], usage.get("completion_tokens", 0)) == (outcome.prompt, outcome.completion)
        assert usage["total_tokens"] == outcome.prompt + outcome.completion
        cost = json.loads(seen.payloads[-2 if scenario.stream else 0], parse_float=Decimal)["usage"]["cost"]
        assert cost.scaleb(9) == Stage.charge(outcome)


def _streamed_usage(seen: Stream, scenario: Scenario) -> dict[str, Any] | None:
    """The usage frame's, which is the last before `[DONE]` and has the form that the client asked for."""
    asked = (scenario.request.get("stream_options") or {}).get("include_usage")
    if asked is False:
        assert not any('"usage"' in payload for payload in seen.payloads)
        return None
    last = seen.frames[-1]
    assert seen.usage is last["usage"] or seen.usage == last["usage"]
    assert sum('"usage"' in payload for payload in seen.payloads) == 1
    if asked:
        assert last["choices"] == []
    else:
        assert len(last["choices"]) == 1
        assert last["choices"][0]["finish_reason"] is None
    return seen.usage


def _assert_failed(seen: Stream, outcome: Failed) -> None:
    if outcome.status is None:
        assert seen.status == 200
        assert _text(seen) == outcome.text
        assert not seen.done
        assert seen.usage is None
        assert "error" in seen.frames[-1]
        assert set(_reasons(seen)) == ({outcome.finish_reason} if outcome.finish_reason else set())
    else:
        assert seen.status == outcome.status, seen.payloads
        assert (seen.headers.get("x-should-retry") == "false") is outcome.no_retry
        assert seen.headers["content-type"].startswith("application/json")
        if outcome.retry_after_s is not None:
            assert seen.headers["retry-after"] == str(outcome.retry_after_s)
    error = seen.error
    assert error is not None
    assert set(error) == {"message", "type", "param", "code"}
    assert outcome.code in (error["code"], error["type"])
    for said in outcome.says:
        assert said in error["message"]
    for hidden in outcome.hides:
        assert hidden not in json.dumps(error)


def _text(seen: Stream) -> str:
    """What the first choice says, on either route."""
    choices = [choice for frame in seen.frames for choice in frame.get("choices") or ()]
    return "".join(
        choice.get("text") or (choice.get("delta") or {}).get("content") or ""
        for choice in choices
        if choice.get("index", 0) == 0
    )


def _reasons(seen: Stream) -> list[str]:
    choices = [choice for frame in seen.frames for choice in frame.get("choices") or ()]
    return [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
