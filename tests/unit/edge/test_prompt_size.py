"""The bound on a prompt: never below what a template can make of the request's strings."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.edge import chat_request
from services.edge.media import measure
from services.edge.normal_form import string_bytes
from services.edge.openai_request import Bounds
from services.edge.prompt_size import PromptSize, printed_bytes, value_bytes

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda child: st.lists(child, max_size=4) | st.dictionaries(TEXT, child, max_size=4),
    max_leaves=12,
)


def size(**body: Any) -> PromptSize:
    whole = {"model": "m", "messages": [{"role": "user", "content": "hi"}]} | body
    return chat_request.check(whole, {}, Bounds()).prompt


@given(JSON)
def test_a_value_counts_every_string_in_it(value: Any) -> None:
    def strings(item: Any) -> list[str]:
        if isinstance(item, str):
            return [item]
        if isinstance(item, list):
            return [text for child in item for text in strings(child)]
        if isinstance(item, dict):
            return [text for name, child in item.items() for text in [name, *strings(child)]]
        return []

    assert value_bytes(value) == sum(map(string_bytes, strings(value)))


def test_integers_that_our_parser_rounds_count_every_digit() -> None:
    values = orjson.loads(b"[" + b"9" * 300 + b"]")
    assert printed_bytes(values) >= 300


def test_a_value_that_prints_a_hundred_times_as_large_is_counted_without_being_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    value: Any = 1
    for _ in range(60):
        value = [value, value]
        if isinstance(value[0], list):
            value = [value[0]]
    expected = len(json.dumps(value, indent=4))
    dumps = json.dumps

    def only_texts(item: Any, **options: Any) -> str:
        assert isinstance(item, str)
        return dumps(item, **options)

    monkeypatch.setattr(json, "dumps", only_texts)
    assert printed_bytes(value) == expected


@given(JSON)
def test_a_value_counts_as_it_would_be_printed(value: Any) -> None:
    printed = json.dumps(value, indent=4, ensure_ascii=False)
    assert printed_bytes(value) >= string_bytes(printed) or not printed.isascii()
    assert printed_bytes(value) >= len(printed.encode())
    if printed.isascii():
        assert printed_bytes(value) == len(printed)


@given(st.lists(TEXT, min_size=1, max_size=4))
def test_messages_count_their_text_and_their_number(texts: list[str]) -> None:
    found = size(messages=[{"role": "user", "content": text} for text in texts])
    assert found.text_bytes == sum(map(string_bytes, texts)) + 4 * len(texts)
    assert found.messages == len(texts)


def test_content_parts_and_images() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10_000}}
    found = size(messages=[{"role": "user", "content": [{"type": "text", "text": "abc"}, picture, picture]}])
    assert found.images == 2
    assert 3 < found.text_bytes < 100


def test_the_first_image_is_known_by_its_part() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    texts = {"role": "user", "content": ["a", {"type": "text", "text": "b"}]}
    assert measure([texts]).first_image == ""
    pictured = {"role": "user", "content": ["a", picture, picture]}
    assert measure([texts, pictured, pictured]).first_image == "messages[1].content[1]"


def test_tools_count_as_they_are_printed() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    plain = size()
    found = size(tools=tools)
    assert found.has_tools
    assert not plain.has_tools
    assert found.text_bytes - plain.text_bytes == len(json.dumps(tools, indent=4))


def test_tool_calls_in_messages_count_as_they_are_printed() -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}]
    found = size(messages=[{"role": "assistant", "content": None, "tool_calls": calls}])
    assert found.text_bytes >= len(json.dumps(calls, indent=4))


@pytest.mark.parametrize(
    "member",
    [
        {"documents": [{"text": "abcdefgh" * 10}]},
        {"chat_template_kwargs": {"note": "abcdefgh" * 10}},
        {"an_extra_of_some_runtime": "abcdefgh" * 10},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "abcdefgh" * 10}}},
    ],
)
def test_whatever_a_template_may_read_counts(member: dict[str, Any]) -> None:
    assert size(**member).text_bytes >= size().text_bytes + 80


def test_what_no_template_reads_does_not() -> None:
    assert size(user="abcdefgh", stop=["abcdefgh"], metadata={"a": "b"}) == size()
