"""The bound on a prompt: never below what a template can make of the request's strings."""

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.edge import chat_request
from services.edge.openai_request import Bounds
from services.edge.prompt_size import PromptSize, printed_bytes, string_bytes, value_bytes

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda child: st.lists(child, max_size=4) | st.dictionaries(TEXT, child, max_size=4),
    max_leaves=12,
)


def size(**body: Any) -> PromptSize:
    whole = {"model": "m", "messages": [{"role": "user", "content": "hi"}]} | body
    return chat_request.check(whole, {}, Bounds()).prompt


@given(TEXT)
def test_a_string_counts_the_larger_of_its_two_forms(text: str) -> None:
    counted = string_bytes(text)
    assert counted >= len(text.encode())
    assert counted >= len(unicodedata.normalize("NFKC", text).encode())
    assert counted in (len(text.encode()), len(unicodedata.normalize("NFKC", text).encode()))


def test_one_character_that_normalises_to_many_counts_as_many() -> None:
    assert string_bytes("\ufdfa") == 33
    assert string_bytes("ﬀ") == 3


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
    assert printed_bytes(value) >= len(json.dumps(value, ensure_ascii=False).encode())


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
