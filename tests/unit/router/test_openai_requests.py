"""What a worker is sent, and what its refusals mean: fields, body, and error bodies in every known shape."""

import json
from typing import Any

import pytest
from speedinfer.common.v1.operation_pb2 import (
    OPERATION_CHAT_COMPLETION,
    OPERATION_COMPLETION,
    OPERATION_EMBEDDING,
    Operation,
)
from speedinfer.router.v1.frame_pb2 import (
    FAILURE_REASON_OVERLOADED,
    FAILURE_REASON_REJECTED,
    FAILURE_REASON_UPSTREAM,
)

from services.router.safe_text import SafeText
from services.router.transport import openai_body, openai_errors, openai_fields
from services.router.transport.port import Dispatch

FORBIDDEN = [
    "n_predict", "n_cmpl", "max_new_tokens", "prompt_ignore_length", "lora_request", "prompt_token_ids",
    "disaggregated_params", "cache_salt", "chat_template", "injected_chat_template_kwargs", "media_io_kwargs",
    "mm_processor_kwargs", "max_tokens", "max_completion_tokens", "stream", "stream_options", "model",
]  # fmt: skip


@pytest.mark.parametrize("name", FORBIDDEN)
@pytest.mark.parametrize("operation", [OPERATION_CHAT_COMPLETION, OPERATION_COMPLETION, OPERATION_EMBEDDING])
@pytest.mark.parametrize("forward", [False, True])
def test_forbidden_fields_never_pass(name: str, operation: Operation.ValueType, forward: bool) -> None:
    passing, ignored = openai_fields.choose(operation, [(name, b"1")], "vllm", forward)
    assert passing == []
    assert ignored == (name,)


@pytest.mark.parametrize(
    ("value", "passes"),
    [
        (b'{"enable_thinking":false}', True),
        (b'{"chat_template":"x"}', False),
        (b'{"ch\\u0061t_template":"x"}', False),
        (b'{"tokenize":true}', False),
        (b"[1]", False),
    ],
)
def test_arguments_of_the_template_may_not_be_a_template(value: bytes, passes: bool) -> None:
    members = [("chat_template_kwargs", value)]
    passing, _ = openai_fields.choose(OPERATION_CHAT_COMPLETION, members, "vllm", True)
    assert passing == (members if passes else [])


@pytest.mark.parametrize(
    ("name", "runtime", "forward", "passes"),
    [
        ("temperature", "tensorrt-llm", False, True),
        ("top_k", "vllm", False, True),
        ("grammar", "llama.cpp", False, True),
        ("tools", "sglang", False, True),
        ("prompt", "vllm", False, False),
        ("whatever", "vllm", False, False),
        ("whatever", "vllm", True, True),
        ("metadata", "vllm", False, True),
        ("metadata", "tensorrt-llm", False, False),
        ("store", "tensorrt-llm", True, True),
    ],
)
def test_fields_of_a_chat(name: str, runtime: str, forward: bool, passes: bool) -> None:
    passing, ignored = openai_fields.choose(OPERATION_CHAT_COMPLETION, [(name, b"1")], runtime, forward)
    assert bool(passing) == passes
    assert bool(ignored) != passes


def test_null_is_dropped_without_a_word() -> None:
    assert openai_fields.choose(OPERATION_CHAT_COMPLETION, [("stop", b"null")], "vllm", True) == ([], ())


@pytest.mark.parametrize(
    ("operation", "stream", "limit", "field", "options", "expected"),
    [
        (OPERATION_CHAT_COMPLETION, True, 5, "max_tokens", "usage",
         {"max_tokens": 5, "stream": True, "stream_options": {"include_usage": True}}),
        (OPERATION_CHAT_COMPLETION, True, 5, "max_completion_tokens", "continuous",
         {"max_completion_tokens": 5, "stream": True,
          "stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
        (OPERATION_CHAT_COMPLETION, True, 5, "max_tokens", "none", {"max_tokens": 5, "stream": True}),
        (OPERATION_CHAT_COMPLETION, False, 5, "max_tokens", "usage", {"max_tokens": 5}),
        (OPERATION_COMPLETION, False, 5, "max_completion_tokens", "usage", {"max_tokens": 5}),
        (OPERATION_EMBEDDING, False, None, "max_tokens", "usage", {}),
    ],
)  # fmt: skip
def test_the_body(
    operation: Operation.ValueType, stream: bool, limit: int | None, field: str, options: str, expected: dict[str, Any]
) -> None:
    dispatch = Dispatch("r", 1, operation, "public", stream, [], limit)
    text = openai_body.build(dispatch, [("input", b'"\\u00e9"'), ('a"b', b"1.0")], 'own"name', field, options)
    assert json.loads(text) == {"model": 'own"name', "input": "é", 'a"b': 1.0, **expected}
    assert b'"input":"\\u00e9"' in text
    assert b":1.0" in text


@pytest.mark.parametrize(
    ("status", "reason", "try_another", "counts"),
    [
        (400, FAILURE_REASON_REJECTED, False, False),
        (413, FAILURE_REASON_REJECTED, False, False),
        (422, FAILURE_REASON_REJECTED, False, False),
        (501, FAILURE_REASON_REJECTED, False, False),
        (401, FAILURE_REASON_UPSTREAM, True, False),
        (403, FAILURE_REASON_UPSTREAM, True, False),
        (404, FAILURE_REASON_UPSTREAM, True, False),
        (405, FAILURE_REASON_UPSTREAM, True, False),
        (302, FAILURE_REASON_UPSTREAM, True, False),
        (418, FAILURE_REASON_UPSTREAM, True, False),
        (408, FAILURE_REASON_OVERLOADED, True, False),
        (429, FAILURE_REASON_OVERLOADED, True, False),
        (503, FAILURE_REASON_OVERLOADED, True, False),
        (500, FAILURE_REASON_UPSTREAM, True, True),
        (502, FAILURE_REASON_UPSTREAM, True, True),
        (504, FAILURE_REASON_UPSTREAM, True, True),
    ],
)
def test_what_a_status_means(status: int, reason: Any, try_another: bool, counts: bool) -> None:
    failure = openai_errors.from_status(status, b'{"error":{"message":"inner"}}', "3")
    assert (failure.reason, failure.try_another, failure.counts_against_worker) == (reason, try_another, counts)
    assert failure.http_status == {501: 400}.get(status, status if reason == FAILURE_REASON_REJECTED else 0)
    assert ("inner" in failure.message) == (reason == FAILURE_REASON_REJECTED)
    assert failure.retry_after_ms == (3000 if reason == FAILURE_REASON_OVERLOADED else 0)


@pytest.mark.parametrize(
    ("body", "message", "param", "code"),
    [
        (b'{"error":{"message":"m","type":"t","param":"p","code":"c"}}', "m", "p", "c"),
        (b'{"error":{"message":"m","param":null,"code":400}}', "m", "", ""),
        (b'{"error":"text"}', "text", "", ""),
        (b'{"object":"error","message":"flat","type":"BadRequestError","param":null,"code":400}', "flat", "", ""),
        (b'{"detail":"text"}', "text", "", ""),
        (b'{"detail":[{"loc":["body","messages",0,"role"],"msg":"bad role","type":"x"},{"msg":"two"}]}',
         "messages.0.role: bad role; two", "messages.0.role", ""),
        (b'{"message":"plain"}', "plain", "", ""),
        (b'{"error":{}}', "the worker refused the request", "", ""),
        (b"{}", "the worker refused the request", "", ""),
        (b"[]", "the worker refused the request", "", ""),
        (b"<html>", "the worker refused the request", "", ""),
        (b"", "the worker refused the request", "", ""),
        (b'{"error":{"error":{"message":"m","param":"p","code":"c"}}}', "m", "p", "c"),
        (b'{"error":{"error":"m"}}', "m", "", ""),
        (b'{"error":{"message":"m","error":{"message":"n"}}}', "m", "", ""),
        (b'{"error":{"message":{"message":"m","code":"c"}}}', "m", "", "c"),
        (b'{"error":{"detail":"m"}}', "m", "", ""),
        (b'{"error":{"detail":{"message":"m"}}}', "m", "", ""),
        (b'{"error":{"errors":[{"message":"m"}]}}', "m", "", ""),
        (b'{"message":{"error":{"msg":"m"}}}', "m", "", ""),
        (b'{"error":' * 900 + b'"m"' + b"}" * 900, "the worker refused the request", "", ""),
        (b'{"detail":' * 900 + b'"m"' + b"}" * 900, "the worker refused the request", "", ""),
        ('{"error":{"message":"schön"}}'.encode("latin-1"), "schön", "", ""),
        (b'{"error":"\xff\xfe' + b'"', "the worker refused the request", "", ""),
        (b'{"error":{"message":7}}', "the worker refused the request", "", ""),
    ],
)  # fmt: skip
def test_every_shape_of_a_refusal(body: bytes, message: str, param: str, code: str) -> None:
    failure = openai_errors.from_status(400, body)
    assert (failure.message, failure.param, failure.code) == (message, param, code)


def test_what_the_registration_holds_is_told_neither_as_text_nor_as_a_code() -> None:
    body = b'{"error":{"message":"Invalid key worker-key-1","code":"worker-key-1","param":"worker-key-1"}}'
    failure = openai_errors.from_status(400, body, safe=SafeText(["worker-key-1"]))
    assert (failure.message, failure.param, failure.code) == ("Invalid key ***", "***", "")


NEVER = [
    "beam_width", "extra_body", "input_embeds", "input_ids", "inputs", "max_new_tokens", "n_cmpl", "n_predict",
    "num_return_sequences", "num_sequences", "parameters", "prompt_embeds", "return_sequences", "sampling_params", "text",
    "token_ids", "tokens",
]  # fmt: skip


@pytest.mark.parametrize("operation", [OPERATION_CHAT_COMPLETION, OPERATION_COMPLETION, OPERATION_EMBEDDING])
def test_what_changes_accounting_never_passes(operation: Any) -> None:
    own = {OPERATION_CHAT_COMPLETION: "messages", OPERATION_COMPLETION: "prompt", OPERATION_EMBEDDING: "input"}[
        operation
    ]
    others = {"messages", "prompt", "input"} - {own}
    members = [(name, b"1") for name in [*NEVER, *sorted(others), own, "harmless_unknown"]]
    passing, ignored = openai_fields.choose(operation, members, "vllm", True)
    assert [name for name, _ in passing] == [own, "harmless_unknown"]
    assert set(ignored) == {*NEVER, *others}
