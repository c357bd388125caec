"""Group P, parameters: what is out of range is refused by name before any money; the rest goes on as it was written."""

import json
import re
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.fakes import scripts
from tests.fakes.scenario import Answered, Scenario
from tests.faults.well import WELL
from tests.harness import http_client
from tests.harness.stage import MODEL, Customer, Stage

CHAT = "/chat/completions"
MESSAGES = [{"role": "user", "content": "Say hello."}]
BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {"model": MODEL, "messages": MESSAGES},
    "completions": {"model": MODEL, "prompt": "Say hello."},
    "embeddings": {"model": MODEL, "input": "Say hello."},
}
pytestmark = pytest.mark.usefixtures("untouched")


LIMITS = [
    (name, value) for name in ("max_tokens", "max_completion_tokens") for value in (0, -1, 1.5, 1e3, "5", True, 2**31)
]
WRONG: list[tuple[str, str, Any, str]] = [
    *(("chat/completions", name, value, name) for name, value in LIMITS),
    *(("completions", "max_tokens", value, "max_tokens") for value in (0, -1, "5")),
    *(("chat/completions", "n", value, "n") for value in (0, -1, 129, "2", 1.0, True)),
    ("completions", "best_of", 0, "best_of"),
    *(("chat/completions", "stop", value, "stop") for value in ("", [""], ["a", 1], 5, {}, ["a"] * 65)),
    *(("chat/completions", "temperature", value, "temperature") for value in (-0.1, 2.1, "1", True, [])),
    *(("chat/completions", "top_p", value, "top_p") for value in (-0.1, 1.1, "1")),
    ("chat/completions", "presence_penalty", 2.5, "presence_penalty"),
    *(("chat/completions", "stream", value, "stream") for value in ("true", 1, [])),
    ("chat/completions", "stream_options", "usage", "stream_options"),
    ("chat/completions", "stream_options", {"include_usage": "yes"}, "stream_options.include_usage"),
    ("chat/completions", "seed", "1", "seed"),
    ("chat/completions", "logit_bias", [1], "logit_bias"),
    ("chat/completions", "user", 5, "user"),
    ("chat/completions", "response_format", "json", "response_format"),
    ("chat/completions", "tools", {}, "tools"),
    ("chat/completions", "tools", ["f"], "tools[0]"),
    ("chat/completions", "tool_choice", 1, "tool_choice"),
    ("chat/completions", "chat_template", "{{ 1 }}", "chat_template"),
    ("chat/completions", "chat_template_kwargs", {"a": [{"chat_template": "x"}]}, "chat_template_kwargs.a[0].chat_template"),
    ("chat/completions", "injected_chat_template_kwargs", ["thinking"], "injected_chat_template_kwargs"),
    ("completions", "extra_body", {"a": {"chat_template": "x"}}, "extra_body.a.chat_template"),
    ("embeddings", "metadata", {"chat_template": "x"}, "metadata.chat_template"),
    ("chat/completions", "beam_width", 4, "beam_width"),
    ("chat/completions", "messages", "hi", "messages"),
    ("chat/completions", "messages", [], "messages"),
    ("chat/completions", "messages", [{"content": "hi"}], "messages[0].role"),
    ("chat/completions", "messages", [{"role": "", "content": "hi"}], "messages[0].role"),
    ("chat/completions", "messages", [{"role": "user", "content": 5}], "messages[0].content"),
    ("chat/completions", "messages", [{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
    ("chat/completions", "messages", [{"role": "user", "content": [{}] * 16_385}], "messages[0].content"),
    *(("completions", "prompt", value, "prompt") for value in (None, [], ["a", "b"], [1, "a"], [[1], [2]], [-1], 5, {})),
    *(("embeddings", "input", value, "input") for value in (None, "", [], [""], ["a", 1], [[]], [-1], ["a"] * 2049)),
    ("embeddings", "encoding_format", "hex", "encoding_format"),
    ("embeddings", "dimensions", 0, "dimensions"),
    ("embeddings", "stream", True, "stream"),
]  # fmt: skip


@pytest.mark.parametrize(("route", "name", "value", "param"), WRONG, ids=lambda value: str(value)[:24])
async def test_p3_what_is_out_of_range_is_refused_by_name(
    route: str, name: str, value: Any, param: str, stage: Stage, http: httpx.AsyncClient
) -> None:
    answer = await http.post(f"/{route}", json=BODIES[route] | {name: value})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert error["message"]
    assert stage.received() == []


async def sent(
    stage: Stage, customer: Customer, body: bytes, scenario: Scenario = WELL
) -> tuple[httpx.Response, bytes]:
    """The answer, and what the worker got; the customer has paid for one answer."""
    stage.play(scenario)
    headers = {"authorization": f"Bearer {customer.key}", "content-type": "application/json"}
    async with http_client.plain(base_url=stage.product.base_url, headers=headers, timeout=60) as http:
        answer = await http.post(CHAT, content=body)
    assert answer.status_code == 200, answer.text
    [received] = stage.received()
    stage.assert_charged(customer, scenario)
    stage.play(WELL)
    return answer, received.body


def body_with(**members: Any) -> bytes:
    return json.dumps(BODIES["chat/completions"] | members).encode()


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(
    ("members", "limit"),
    [
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 7}, 7),
        ({"max_tokens": 9, "max_completion_tokens": 7}, 7),
        ({"max_tokens": None, "max_completion_tokens": 7}, 7),
    ],
    ids=["old", "new", "both", "null"],
)
async def test_p4_exactly_one_name_of_the_limit_reaches_the_worker(
    field: str, members: dict[str, Any], limit: int, stage: Stage, customer: Customer
) -> None:
    _, received = await sent(stage, customer, body_with(**members), replace(WELL, config={"max_tokens_field": field}))
    found = json.loads(received)
    assert {name: found[name] for name in ("max_tokens", "max_completion_tokens") if name in found} == {field: limit}


FORBIDDEN = (
    "n_predict", "n_cmpl", "max_new_tokens", "prompt_ignore_length", "lora_request", "prompt_token_ids",
    "disaggregated_params", "cache_salt", "media_io_kwargs", "mm_processor_kwargs",
)  # fmt: skip


@pytest.mark.parametrize("forward", [False, True])
async def test_unknown_fields_pass_where_the_worker_says_so_and_forbidden_ones_never(
    forward: bool, stage: Stage, customer: Customer
) -> None:
    scenario = replace(WELL, config={"forward_unknown_fields": forward})
    members = dict.fromkeys(FORBIDDEN, 1) | {"top_k": 5, "colour": "red", "nothing": None}
    answer, received = await sent(stage, customer, body_with(**members), scenario)
    found = json.loads(received)
    assert not set(FORBIDDEN) & found.keys()
    assert found["top_k"] == 5
    assert "nothing" not in found
    assert ("colour" in found) is forward
    ignored = set(answer.headers["x-speedinfer-ignored-fields"].split(", "))
    assert ignored == {*FORBIDDEN} | (set() if forward else {"colour"})


AS_WRITTEN = {
    "functions": '[{"name":"f","parameters":{"properties":{"chat_template":{"type":"string"}}}}]',
    "tools": '[ {"type":"function","function":{"name":"f\\u00e9","parameters":{"type":"object","properties":{"b":'
    '{"minimum":1.0,"maximum":1E3},"a":{"const":12345678901234567890}}}}} ]',
    "tool_choice": '{"type":"function","function":{"name":"f\\u00e9"}}',
    "response_format": '{"type":"json_schema","json_schema":{"name":"s","schema":{"z":1,"a":[1.10,-0,null]},"strict":true}}',
    "logit_bias": '{"50256": -100, "7":1.50}',
    "seed": "-0",
    "user": '"\\u0075ser \\ud83d\\ude00"',
    "stop": '[ "\\n\\n" , "\\/" ]',
    "reasoning_effort": '"low"',
    "modalities": '["text"]',
    "audio": '{"voice":"alloy","format":"wav"}',
    "prediction": '{"type":"content","content":"x"}',
    "web_search_options": "{}",
    "store": "false",
    "metadata": '{"k":"v\\u0020"}',
    "temperature": "1.0e0",
    "parallel_tool_calls": "false",
    "messages": '[{"role":"developer","content":[{"type":"text","text":"a\\u0062"},"plain"]},{"content":null,'
    '"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\\"x\\": 1.0}"}}]},'
    '{"role":"tool","tool_call_id":"c1","content":"1"},{"role":"of-some-model","content":""}]',
}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), AS_WRITTEN.items(), ids=AS_WRITTEN.keys())
async def test_members_reach_the_worker_byte_for_byte(name: str, text: str, stage: Stage, customer: Customer) -> None:
    members = {"model": json.dumps(MODEL), "messages": json.dumps(MESSAGES)} | {name: text}
    body = "{" + ", ".join(f'"{each}" : {value}' for each, value in members.items()) + "}"
    _, received = await sent(stage, customer, body.encode())
    assert f'"{name}":{text}'.encode() in received


async def test_stream_options_of_a_whole_request_stay_here(stage: Stage, customer: Customer) -> None:
    _, received = await sent(stage, customer, body_with(stream_options={"include_usage": True}, stop=[], n=None))
    assert not {"stream", "stream_options", "n"} & json.loads(received).keys()


def _tool_stream() -> Scenario:
    calls: list[dict[str, Any]] = [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}},
        {"index": 1, "id": "c2", "type": "function", "function": {"name": "g", "arguments": "{"}},
        {"index": 1, "id": None, "function": {"name": None, "arguments": "}"}},
    ]
    frames = [scripts.delta("good", tool_calls=[call]) for call in calls]
    end = scripts.delta("good", finish_reason="tool_calls")
    script = scripts.stream(*frames, end, scripts.frame("good", choices=[], usage=scripts.usage(12, 2)))
    return replace(WELL, script=script, stream=True, outcome=Answered("", 12, 2, finish_reason="tool_calls"))


async def test_p6_tool_deltas_are_relayed_as_they_are(stage: Stage, customer: Customer) -> None:
    answer, _ = await sent(stage, customer, body_with(stream=True, tools=[{"type": "function"}]), _tool_stream())
    for piece in (
        '"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":""}}]',
        '"tool_calls":[{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":"{"}}]',
        '"tool_calls":[{"index":1,"id":null,"function":{"name":null,"arguments":"}"}}]',
    ):
        assert piece in answer.text
    assert answer.text.endswith("data: [DONE]\n\n")


def test_an_operators_number_is_a_number_over_the_command_and_http(stage: Stage) -> None:
    url = f"http://{stage.product.address('admin')}/admin/v1/workers"
    operator = {"authorization": f"Bearer {stage.product.admin_token}"}
    good: dict[str, Any] = {
        "worker_id": "strict-1",
        "worker_type": "test",
        "runtime": "vllm",
        "runtime_endpoint": "http://127.0.0.1:9/v1",
        "supported_models": ["acme/strict"],
        "runtime_config": {"transport": "openai", "check": "metadata"},
        "runtime_metadata": {"gpus": 8, "rate": 0.5},
    }
    changes: list[tuple[dict[str, Any], str, str]] = [
        ({"runtime_config": {"transport": "openai", "connect_timeout_s": "5"}},
         "runtime_config.connect_timeout_s", "runtime_config.connect_timeout_s: it must be a number"),
        ({"runtime_config": {"transport": "openai", "max_concurrency": True}},
         "runtime_config.max_concurrency", "runtime_config.max_concurrency: it must be a whole number"),
        ({"runtime_config": {"transport": "openai", "model_map": {"acme/other": "x"}}},
         "runtime_config.model_map", "runtime_config.model_map: 'acme/other' is not one of supported_models"),
        ({"worker_id": 7}, "worker_id", "worker_id: it must be a string"),
        ({"supported_models": "acme/strict"}, "supported_models", "supported_models: it must be a list of strings"),
        ({"worker_id": None}, "worker_id", "worker_id is missing"),
    ]  # fmt: skip
    with httpx.Client(headers=operator) as http:
        for change, param, message in changes:
            answer = http.post(url, json=good | change)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
            assert message in answer.json()["error"]["message"]
            done = stage.product.run("workers", "register", "-", stdin=json.dumps(good | change))
            assert done.code == 1
            assert message in done.err
        assert "/admin/v1/workers" in http.get(f"{url}/x/y/z").json()["error"]["message"]
        registered = http.post(url, json=good).json()
        assert registered["metadata"] == {
            "gpus": 8,
            "rate": 0.5,
        }
        shown = stage.product.worker("strict-1")
        assert shown["detail"] == http.get(f"{url}/strict-1").json()["detail"]
        health = httpx.get(f"{stage.product.url}/health")
        assert re.search(r'"gpus": ?8[,}]', health.text)
        assert http.delete(f"{url}/strict-1").status_code == 200
