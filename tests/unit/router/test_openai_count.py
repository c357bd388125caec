"""What a worker is asked to count, and what is no count."""

import json
from typing import Any

import pytest
from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION, OPERATION_COMPLETION, OPERATION_EMBEDDING

from services.router.registration import InvalidRegistration, read
from services.router.transport import openai_count

CHAT, COMPLETION = OPERATION_CHAT_COMPLETION, OPERATION_COMPLETION
HI = [{"role": "user", "content": "Hi"}]


def asked(dialect: str, operation: Any, **members: Any) -> Any:
    """The body that the counting route gets, parsed; None if it is not asked."""
    texts = [(name, json.dumps(value).encode()) for name, value in members.items()]
    body = openai_count.body(dialect, operation, texts, "own")
    return None if body is None else json.loads(body)


def test_a_chat_is_counted_with_all_that_its_template_reads() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    read_by_templates = {
        "messages": HI,
        "tools": tools,
        "chat_template_kwargs": {"enable_thinking": False},
        "add_generation_prompt": False,
        "continue_final_message": True,
    }
    found = asked("vllm", CHAT, temperature=0.5, tool_choice="auto", **read_by_templates, n=2, user="x")
    assert found == {"model": "own", **read_by_templates}


@pytest.mark.parametrize(
    "more",
    [
        {"documents": [{"text": "d"}]},
        {"reasoning_effort": "high"},
        {"tool_choice": "required"},
        {"functions": [{"name": "f"}]},
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        {"unheard_of": 1},
        {"truncate_prompt_tokens": 5},
    ],
    ids=lambda more: next(iter(more)),
)
@pytest.mark.parametrize("dialect", ["vllm", "anthropic"])
def test_what_may_change_the_prompt_and_cannot_be_said_is_not_counted(dialect: str, more: dict[str, Any]) -> None:
    assert asked(dialect, CHAT, messages=HI) is not None
    assert asked(dialect, CHAT, messages=HI, response_format={"type": "text"}) is not None
    assert asked(dialect, CHAT, messages=HI, **more) is None


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_a_completion_is_one_text(dialect: str) -> None:
    assert asked(dialect, COMPLETION, prompt='"é', seed=1) == {"model": "own", "prompt": '"é'}
    assert asked(dialect, COMPLETION, prompt=["one"]) == {"model": "own", "prompt": "one"}
    assert asked(dialect, COMPLETION, prompt="x", add_special_tokens=False)["add_special_tokens"] is False
    for other in ([1, 2], ["a", "b"], [], [[1]], 7):
        assert asked(dialect, COMPLETION, prompt=other) is None
    assert asked(dialect, COMPLETION, prompt="x", suffix="y") is None
    assert asked(dialect, COMPLETION) is None


def test_what_a_route_does_not_know_is_not_asked_of_it() -> None:
    assert asked("sglang", CHAT, messages=HI) is None
    assert asked("anthropic", COMPLETION, prompt="x") is None
    assert asked("vllm", OPERATION_EMBEDDING, input="x") is None
    assert asked("none", CHAT, messages=HI) is None
    assert asked("vllm", CHAT) is None


def test_messages_in_the_form_of_the_messages_api() -> None:
    system, answer = {"role": "system", "content": "Be brief."}, {"role": "assistant", "content": "Yes?"}
    assert asked("anthropic", CHAT, messages=[system, *HI, answer, *HI]) == {
        "model": "own",
        "system": "Be brief.",
        "messages": [*HI, answer, *HI],
    }
    assert asked("anthropic", CHAT, messages=HI, tools=[]) is None
    for other in (
        [*HI, system],
        [system],
        [{"role": "tool", "content": "x"}],
        [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
        [{"role": "user", "content": "x", "name": "n"}],
        [],
        "x",
    ):
        assert asked("anthropic", CHAT, messages=other) is None


def test_only_a_whole_number_of_tokens_is_a_count() -> None:
    assert openai_count.read("vllm", b'{"count": 12, "tokens": [1]}') == 12
    assert openai_count.read("anthropic", b'{"input_tokens": 12}') == 12
    for nonsense in (b"-1", b"0", b"12.0", b'"12"', b"true", b"null", b"2147483648", b"1e400", b"[12]", b"9" * 700):
        assert openai_count.read("vllm", b'{"count": ' + nonsense + b"}") is None
    for other in (b"", b"12", b"[]", b"{}", b'{"input_tokens": 12}', b"\xff", b'{"count":'):
        assert openai_count.read("vllm", other) is None


def document(**config: Any) -> dict[str, Any]:
    return {
        "worker_id": "w",
        "runtime": "vllm",
        "runtime_endpoint": "http://127.0.0.1:8000/v1",
        "supported_models": ["m"],
        "runtime_config": {"transport": "openai", **config},
    }


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"count_tokens": "tiktoken"}, "count_tokens: it must be 'none', 'vllm', 'sglang' or 'anthropic'"),
        ({"count_tokens_path": "/tokenize"}, "count_tokens_path: it says where, and count_tokens must say how"),
        ({"count_tokens": "vllm", "count_tokens_path": "http://elsewhere/"}, "count_tokens_path"),
        ({"count_tokens": "vllm", "count_tokens_path": "/a?b=c"}, "count_tokens_path"),
    ],
)
def test_a_registration_says_how_and_where(config: dict[str, Any], message: str) -> None:
    assert read(document(count_tokens="vllm", count_tokens_path="/v1/tokenize"))
    with pytest.raises(InvalidRegistration) as refused:
        read(document(**config))
    assert message in str(refused.value)
