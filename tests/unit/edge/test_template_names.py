"""Templates in a request are refused wherever they stand, with the way to them; a property of that name in a schema is none."""

from typing import Any

import orjson
import pytest

from services.edge import chat_request, completion_request, embedding_request, json_object
from services.edge.openai_errors import Refused
from services.edge.openai_request import Bounds, InferenceRequest

CHECKS = {"chat": chat_request.check, "completion": completion_request.check, "embedding": embedding_request.check}
BODIES: dict[str, dict[str, Any]] = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    "completion": {"model": "m", "prompt": "hi"},
    "embedding": {"model": "m", "input": "hi"},
}
USER = {"role": "user", "content": "hi"}
SCHEMA = {"type": "object", "properties": {"chat_template": {"type": "string"}}, "required": ["chat_template"]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"chat_template": "x"}}}


def check(kind: str, body: bytes) -> InferenceRequest:
    return CHECKS[kind](*json_object.parse(body, 64), Bounds())


def refused(kind: str, body: bytes) -> str | None:
    with pytest.raises(Refused) as caught:
        check(kind, body)
    assert (caught.value.problem.status, caught.value.problem.type) == (400, "invalid_request_error")
    return caught.value.problem.param


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {"chat_template": "{{ 1 }}"}
    for _ in range(depth):
        value = {"a": [value]}
    return value


TEMPLATES: list[tuple[dict[str, Any], str]] = [
    ({"chat_template": "x"}, "chat_template"),
    ({"chat_template": ""}, "chat_template"),
    ({"chat_template": {"name": "x"}}, "chat_template"),
    ({"chat_template_path": "/x"}, "chat_template_path"),
    ({"injected_chat_template_kwargs": ["thinking"]}, "injected_chat_template_kwargs"),
    ({"injected_chat_template_kwargs": {}}, "injected_chat_template_kwargs"),
    ({"chat_template_kwargs": nested(0)}, "chat_template_kwargs.chat_template"),
    ({"chat_template_kwargs": nested(1)}, "chat_template_kwargs.a[0].chat_template"),
    ({"chat_template_kwargs": nested(5)}, "chat_template_kwargs" + ".a[0]" * 5 + ".chat_template"),
    ({"extra_body": nested(0)}, "extra_body.chat_template"),
    ({"whatever": [[{"x": nested(2)}]]}, "whatever[0][0].x.a[0].a[0].chat_template"),
    ({"metadata": {"chat_template": "x"}}, "metadata.chat_template"),
    ({"stream_options": {"chat_template": "x"}}, "stream_options.chat_template"),
    ({"documents": [{"text": "a"}, {"chat_template": "x"}]}, "documents[1].chat_template"),
    ({"tool_choice": {"function": {"chat_template": "x"}}}, "tool_choice.function.chat_template"),
    ({"response_format": {"type": "text", "chat_template": "x"}}, "response_format.chat_template"),
    ({"response_format": {"json_schema": {"chat_template": "x"}}}, "response_format.json_schema.chat_template"),
    ({"structured_outputs": {"chat_template": "x"}}, "structured_outputs.chat_template"),
    # Beside a schema, not in it; and names of an excuse in another place.
    ({"tools": [TOOL, {"chat_template": "x"}]}, "tools[1].chat_template"),
    ({"tools": [{"function": {"name": "f", "chat_template": "x"}}]}, "tools[0].function.chat_template"),
    ({"x": {"tools": [TOOL]}}, "x.tools[0].function.parameters.properties.chat_template"),
    ({"parameters": SCHEMA}, "parameters.properties.chat_template"),
    # The first of several.
    ({"a": {"b": {"chat_template": "x"}}, "c": {"chat_template": "x"}}, "a.b.chat_template"),
    ({"a": [{"b": 1}, {"chat_template": "x"}, {"chat_template": "x"}]}, "a[1].chat_template"),
    # A name that is too long to be shown.
    ({"é" * 300: {"chat_template": "x"}}, "é" * 239 + "....chat_template"),
]
MESSAGES: list[tuple[dict[str, Any], str]] = [
    (USER | {"chat_template": "x"}, "messages[0].chat_template"),
    (USER | {"content": [{"type": "text", "text": "x", "chat_template": "x"}]}, "messages[0].content[0].chat_template"),
    (USER | {"tool_calls": [CALL | {"chat_template": "x"}]}, "messages[0].tool_calls[0].chat_template"),
]
NONE: list[dict[str, Any]] = [
    {"chat_template": None},
    {"injected_chat_template_kwargs": None},
    {"chat_template_kwargs": {"enable_thinking": False, "chat_template": None}},
    {"chat_template_kwargs": {"chat_template_name": 1, "template": "x", "text": "chat_template"}},
    {"tools": [TOOL]},
    {"tools": [{"type": "function", "function": {"name": "chat_template", "description": "chat_template"}}]},
    {"tools": [{"name": "f", "input_schema": SCHEMA}, {"name": "g", "parameters": SCHEMA}]},
    {"functions": [{"name": "f", "parameters": SCHEMA}]},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}},
    {"response_format": {"type": "json", "schema": SCHEMA}},
    {"response_format": {"type": "structural_tag", "structures": [{"begin": "a", "schema": SCHEMA, "end": "b"}]}},
    {"response_format": {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": SCHEMA}}},
    {"guided_json": SCHEMA},
    {"json_schema": SCHEMA},
    {"structured_outputs": {"json": SCHEMA}},
    {"messages": [USER | {"content": '{"chat_template": "x"}'}, {"role": "assistant", "tool_calls": [CALL]}]},
    {"messages": [{"role": "assistant", "function_call": {"name": "f", "arguments": {"chat_template": "x"}}}]},
]


@pytest.mark.parametrize(("changes", "path"), TEMPLATES, ids=lambda value: value[:24] if isinstance(value, str) else "")
@pytest.mark.parametrize("kind", list(CHECKS))
def test_a_template_is_named(kind: str, changes: dict[str, Any], path: str) -> None:
    assert refused(kind, orjson.dumps(BODIES[kind] | changes)) == path


@pytest.mark.parametrize(("message", "path"), MESSAGES)
def test_a_template_in_a_message_is_named(message: dict[str, Any], path: str) -> None:
    assert refused("chat", orjson.dumps(BODIES["chat"] | {"messages": [message]})) == path


@pytest.mark.parametrize("changes", NONE)
def test_what_is_no_template_passes(changes: dict[str, Any]) -> None:
    body = BODIES["chat"] | changes
    members = dict(check("chat", orjson.dumps(body)).members)
    kept = {name: value for name, value in body.items() if value is not None and name != "model"}
    assert {name: orjson.loads(text) for name, text in members.items()} == kept


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (b'"ch\\u0061t_template":"x"', "chat_template"),
        (b'"a":{"\\u0063hat_template":"x"}', "a.chat_template"),
        (b'"a":[{"chat\\u005Ftemplate":"x"}]', "a[0].chat_template"),
    ],
)
def test_escapes_hide_no_name(text: bytes, path: str) -> None:
    assert refused("completion", b'{"model":"m","prompt":"hi",' + text + b"}") == path


def test_a_wide_and_deep_body_is_looked_through() -> None:
    """Each container costs one step, whatever stands above it: all that a body may hold are looked at."""
    inner = b"[" + b",".join([b"{}"] * 100_000) + b',{"chat_template":1}]'
    body = b'{"model":"m","prompt":"hi","a":' + b"[" * 50 + inner + b"]" * 50 + b"}"
    assert refused("completion", body) == "a" + "[0]" * 50 + "[100000].chat_template"
