"""A body's members: a name stands once in each object, at any depth, and nothing that only looks like two is refused."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.edge import json_object
from services.edge.openai_errors import Refused

NAMES = st.sampled_from(["a", "b", "", '":', '\\":', "a\\", "é", "\n:"])
VALUES = st.recursive(
    st.none() | st.integers(0, 9) | NAMES | st.sampled_from([": ", '":1,"a":2', "{", ":"]),
    lambda child: st.lists(child, max_size=3) | st.dictionaries(NAMES, child, max_size=3),
    max_leaves=10,
)


def problem(text: bytes) -> Any:
    with pytest.raises(Refused) as caught:
        json_object.parse(text, 64)
    assert caught.value.problem.status == 400
    return caught.value.problem


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":2}',
        b'{"a" : 1 , "a"\n:\t2}',
        b'{"x":{"a":1,"a":2}}',
        b'{"x":[[{"y":":"},{"a":null,"b":"\\":","a":null}]]}',
        b'{"messages":[{"role":"user","content":"x","a":1,"a":2}]}',
        b'{"x":{"a":' + b"9" * 300 + b',"a":1e300}}',
        b'{"x":"' + b" " * 2_000_000 + b'","y":{"a":1,"a":2}}',
    ],
)
def test_a_name_that_stands_twice_is_refused_and_named(text: bytes) -> None:
    found = problem(text)
    assert found.param == "a"
    assert "more than once" in found.message


def test_a_long_name_is_not_repeated_whole() -> None:
    name = b"n" * 5000
    found = problem(b'{"' + name + b'":1,"' + name + b'":2}')
    assert len(found.message) < 200
    assert len(found.param) < 100


@settings(max_examples=50)
@given(st.dictionaries(NAMES, VALUES, max_size=4), st.sampled_from([None, 1]), st.booleans())
def test_whatever_has_each_name_once_is_taken(value: dict[str, Any], indent: int | None, escaped: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=escaped).encode()
    values, members = json_object.parse(text, 64)
    assert values == value
    assert {name: json.loads(raw) for name, raw in members.items()} == value


@settings(max_examples=50)
@given(VALUES, st.sampled_from(['{"p":%s,"q":{"k":1,"k":2}}', '{"p":[%s,{"k":{"k":%s},"k":1}]}']))
def test_twins_are_found_beside_whatever_else(value: Any, frame: str) -> None:
    text = frame.replace("%s", json.dumps(value))
    assert problem(text.encode()).param == "k"


def test_most_bodies_are_not_read_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_object, "_refuse_twins", None)
    body = {"model": "m", "messages": [{"role": "user", "content": 'He said: "yes", {"a": 1}'}], "n": 1, "stream": True}
    assert json_object.parse(json.dumps(body).encode(), 64)[0] == body


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":[' + b"[]," * 131_072 + b"[]]}",
        b'{"a":[' + b"{}," * 131_072 + b"{}]}",
    ],
)
def test_too_many_values_are_refused_before_they_are_made(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_object.orjson, "loads", None)
    assert "too many values" in problem(text).message


def test_too_many_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_object, "MAX_VALUES", 100_000)
    assert "too many values" in problem(b'{"a":[' + b"1," * 100_001 + b"1]}").message


def test_too_many_names_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_object, "MAX_NAMES", 10_000)
    monkeypatch.setattr(json_object.orjson, "loads", None)
    text = b'{"a":{' + b",".join(b'"key number %d":1' % number for number in range(10_001)) + b"}}"
    assert "too many values" in problem(text).message


def test_brackets_and_commas_in_texts_are_no_values() -> None:
    text = json.dumps({"a": '[{,:"' * 140_000 + "\\"}).encode()
    assert json_object.parse(text, 64)[0]["a"].startswith("[{,")


def test_too_many_members_are_refused() -> None:
    text = json.dumps({str(number): 1 for number in range(json_object.MAX_MEMBERS + 1)}).encode()
    assert "members" in problem(text).message
