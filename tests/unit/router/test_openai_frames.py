"""Frames and whole answers of the OpenAI API: what is content, what is cut out, what is put back, what is an error."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION, OPERATION_COMPLETION, OPERATION_EMBEDDING
from speedinfer.router.v1.frame_pb2 import (
    FAILURE_REASON_INVALID_RESPONSE,
    FAILURE_REASON_OVERLOADED,
    FAILURE_REASON_REJECTED,
    FAILURE_REASON_UPSTREAM,
)

from services.common import json_members
from services.router.transport.openai_frames import FrameReader, read_whole
from services.router.transport.port import WorkerFailure
from services.router.usage import Usage


def read(frame: Any, model: str = "m") -> Any:
    """The chunk of one frame, given as a value or as text."""
    return FrameReader(model, OPERATION_CHAT_COMPLETION).read(
        frame if isinstance(frame, bytes) else json.dumps(frame).encode()
    )


def with_delta(delta: Any, **more: Any) -> dict[str, Any]:
    """A frame with one delta."""
    return {"choices": [{"index": 0, "delta": delta, **more}]}


@pytest.mark.parametrize(
    ("frame", "content"),
    [
        (with_delta({"content": "x"}), True),
        (with_delta({"content": " "}), True),
        (with_delta({"reasoning_content": "hm"}), True),
        (with_delta({"reasoning": "hm"}), True),
        (with_delta({"reasoning_items": [1]}), True),
        (with_delta({"refusal": "no"}), True),
        (with_delta({"tool_calls": [{"index": 0}]}), True),
        (with_delta({"function_call": {"name": "f"}}), True),
        (with_delta({"role": "assistant"}), False),
        (with_delta({"role": "assistant", "content": ""}), False),
        (with_delta({"role": "assistant", "content": None, "tool_calls": [], "refusal": None}), False),
        (with_delta({}), False),
        (with_delta(None), False),
        ({"choices": []}, False),
        ({}, False),
        ({"choices": [{"index": 0, "delta": {}}, {"index": 1, "delta": {"content": "x"}}]}, True),
    ],
)
def test_content(frame: dict[str, Any], content: bool) -> None:
    assert read(frame).content == content


def test_an_ordinary_frame_is_the_same_text() -> None:
    text = b'{ "x" : [1.0, 1e5, "\\u00e9"] , "choices":[{"index":0,"delta":{"content":"\\ud83d"}}],"model":"m" } '
    assert read(text).payload == text


def test_a_line_end_inside_a_frame_becomes_a_space() -> None:
    assert read(b'{"choices":\n[],\n"a":1}').payload == b'{"choices": [], "a":1}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"model":"w","choices":[{"index":0}]}', b'{"model":"m","choices":[{"index":0}]}'),
        (b'{ "a":1,\t"model" : "w" , "z":2 }', b'{ "a":1,\t"model" : "m" , "z":2 }'),
        (b'{"a":{"model":"w"},"model":"w"}', b'{"a":{"model":"w"},"model":"m"}'),
        (b'{"a":"\\"model\\":\\"w\\"","model":"w"}', b'{"a":"\\"model\\":\\"w\\"","model":"m"}'),
        (b'{"a":["model",":","w"],"model":"w"}', b'{"a":["model",":","w"],"model":"m"}'),
        (b'{"mod\\u0065l":"w","a":1}', b'{"mod\\u0065l":"m","a":1}'),
        (b'{"model":"m","a":1}', b'{"model":"m","a":1}'),
        (b'{"a":1}', b'{"a":1}'),
        (b'{"model":null,"a":1}', b'{"model":null,"a":1}'),
        (b'{"model":"we\\"ird","a":1}', b'{"model":"m","a":1}'),
    ],
)
def test_the_public_model_is_put_back_and_nothing_else_changes(text: bytes, expected: bytes) -> None:
    assert read(text).payload == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"choices":[{"index":0}],"usage":null}', b'{"choices":[{"index":0}]}'),
        (b'{"usage":{"a":[1,{"b":2}]},"choices":[{"index":0}]}', b'{"choices":[{"index":0}]}'),
        (b'{ "a" : 1 , "usage" : {} , "choices" : [ {"index":0} ] }', b'{ "a" : 1 , "choices" : [ {"index":0} ] }'),
        (b'{"choices":[{"index":0,"usage":1}],"usage":2,"z":3}', b'{"choices":[{"index":0,"usage":1}],"z":3}'),
    ],
)
def test_usage_is_cut_out(text: bytes, expected: bytes) -> None:
    assert read(text).payload == expected


def test_a_frame_of_usage_alone_is_not_relayed() -> None:
    chunk = read({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}})
    assert chunk.payload is None
    assert chunk.usage == Usage(1, None, 2)
    assert chunk.usage_choice is None
    assert read({"choices": [], "usage": None}).payload is None


@pytest.mark.parametrize(
    ("text", "payload", "usage_frame"),
    [
        (
            b'{"id":"a","choices":[],"usage":null,"prompt_filter_results":[1]}',
            b'{"id":"a","choices":[],"prompt_filter_results":[1]}',
            None,
        ),
        (
            b'{"id":"a","choices":[],"usage":{"prompt_tokens":1},"extra":{"x":2},"timings":{}}',
            b'{"id":"a","choices":[],"extra":{"x":2},"timings":{}}',
            b'{"id":"a","choices":[],"usage":{"prompt_tokens":1},"timings":{}}',
        ),
        (b'{"usage":{},"extra":1}', b'{"extra":1}', None),
        (
            b'{"id":"a","object":"o","created":1,"model":"m","system_fingerprint":"f","service_tier":"t","choices":[],'
            b'"usage":{"prompt_tokens":1},"timings":{},"extra":null}',
            None,
            b'{"id":"a","object":"o","created":1,"model":"m","system_fingerprint":"f","service_tier":"t","choices":[],'
            b'"usage":{"prompt_tokens":1},"timings":{},"extra":null}',
        ),
    ],
)
def test_what_a_frame_says_beside_usage_goes_on_once(
    text: bytes, payload: bytes | None, usage_frame: bytes | None
) -> None:
    chunk = read(text)
    assert chunk.payload == payload
    assert chunk.usage_frame == usage_frame


def test_finish_reasons_and_the_choice_that_usage_is_about() -> None:
    chunk = read({"choices": [{"index": 2, "delta": {}, "finish_reason": "length"}], "usage": {"prompt_tokens": 1}})
    assert chunk.finished == {2: "length"}
    assert chunk.usage_choice == 2
    both = read({"choices": [{"finish_reason": "stop"}, {"finish_reason": "stop"}], "usage": {"prompt_tokens": 1}})
    assert both.finished == {0: "stop", 1: "stop"}
    assert both.usage_choice is None


@pytest.mark.parametrize(
    "text", [b"", b"{", b"nonsense", b"[]", b"1", b'"x"', b"null", b'{"a":NaN}', b'{"a":"\xff"}', b"[" * 5000,
             b'{"choices":[],"a":"\xed\xa0\x80"}', '{"choices":[]}'.encode("utf-16"), '{"choices":[]}'.encode("utf-32-le"),
             b'{"a":"\xc0\x80"}', b'{"a":' * 3000 + b"1" + b"}" * 3000, b'{"choices":{"a":1}}',
             b'{"choices":1}', b'{"choices":[1]}', b"{} {}"],
)  # fmt: skip
def test_nonsense_is_an_invalid_response(text: bytes) -> None:
    with pytest.raises(WorkerFailure) as failure:
        read(text)
    assert failure.value.reason == FAILURE_REASON_INVALID_RESPONSE


ERRORS: list[tuple[Any, Any]] = [
    ({"error": "engine died"}, FAILURE_REASON_UPSTREAM),
    ({"error": {"message": "x"}}, FAILURE_REASON_UPSTREAM),
    ({"error": {"message": "x", "code": 500}}, FAILURE_REASON_UPSTREAM),
    ({"error": {"message": "x", "code": 400}}, FAILURE_REASON_REJECTED),
    ({"error": {"message": "x", "code": "400"}}, FAILURE_REASON_REJECTED),
    ({"error": {"message": "x", "code": "bad"}}, FAILURE_REASON_UPSTREAM),
    ({"error": {"message": "x", "code": 503}}, FAILURE_REASON_OVERLOADED),
    ({"error": {"message": "x", "code": 401}}, FAILURE_REASON_UPSTREAM),
    ({"error": {"message": "x", "code": 200}}, FAILURE_REASON_UPSTREAM),
    ({"object": "error", "message": "x", "code": 422}, FAILURE_REASON_REJECTED),
    ({"object": "error", "message": "x"}, FAILURE_REASON_UPSTREAM),
    ({"detail": "x"}, FAILURE_REASON_UPSTREAM),
    ({"detail": [{"loc": ["a"], "msg": "x"}]}, FAILURE_REASON_UPSTREAM),
    ({"type": "error", "error": {"message": "x"}}, FAILURE_REASON_UPSTREAM),
    ({"message": "x", "code": 413}, FAILURE_REASON_REJECTED),
    ({"choices": [], "error": {"code": 400}}, FAILURE_REASON_REJECTED),
    ({"error": {}}, FAILURE_REASON_UPSTREAM),
    ({"error": ""}, FAILURE_REASON_UPSTREAM),
    ({"choices": [], "error": {"code": 0, "message": "x"}, "usage": {"prompt_tokens": 1}}, FAILURE_REASON_UPSTREAM),
]


@pytest.mark.parametrize(("frame", "reason"), ERRORS)
def test_an_error_as_the_first_event_has_its_codes_meaning(frame: Any, reason: Any) -> None:
    with pytest.raises(WorkerFailure) as failure:
        read(frame)
    assert failure.value.reason == reason
    with pytest.raises(WorkerFailure) as whole:
        read_whole(json.dumps(frame).encode(), "m", OPERATION_CHAT_COMPLETION)
    assert whole.value.reason == reason


@pytest.mark.parametrize("frame", [row[0] for row in ERRORS])
def test_an_error_later_is_the_workers(frame: Any) -> None:
    reader = FrameReader("m", OPERATION_CHAT_COMPLETION)
    reader.read(json.dumps(with_delta({"content": "x"})).encode())
    with pytest.raises(WorkerFailure) as failure:
        reader.read(json.dumps(frame).encode())
    assert failure.value.reason == FAILURE_REASON_UPSTREAM
    assert failure.value.message == "the worker reported an error while it was answering"


def test_no_error_where_there_is_none() -> None:
    assert (
        read({"error": None, "choices": [{"index": 0, "delta": {"content": "x"}}], "detail": "x"}).payload is not None
    )
    assert read({"error": None, "choices": [], "prompt_filter_results": [{"message": "x"}]}).payload is not None


LEAK = "at http://10.1.2.3:8000"


@pytest.mark.parametrize(
    "frame",
    [
        {"message": LEAK},
        {"code": 500, "msg": LEAK},
        {"status": "error", "message": LEAK},
        {"error_message": LEAK},
        {"exception": LEAK},
        {"Error": LEAK},
        {"fault": {"faultstring": LEAK}},
        {"choices": [], "detail": LEAK},
        {"choices": None, "errors": [LEAK], "usage": {"prompt_tokens": 1, "completion_tokens": 1}},
        {"choices": [{"index": 0, "delta": {}, "error": {"message": LEAK}}]},
        {"choices": [{"index": 0, "delta": {"error": LEAK}}]},
    ],
)
def test_an_error_is_one_in_whatever_shape(frame: dict[str, Any]) -> None:
    with pytest.raises(WorkerFailure) as failure:
        read(frame)
    assert "10.1.2.3" not in failure.value.message


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"engine died", FAILURE_REASON_UPSTREAM),
        (b"[1]", FAILURE_REASON_UPSTREAM),
        (b'{"message":"x"}', FAILURE_REASON_UPSTREAM),
        (b'{"message":"at 10.0.0.1","code":400}', FAILURE_REASON_REJECTED),
        (b'{"error":{"message":"at 10.0.0.1","code":"400"}}', FAILURE_REASON_REJECTED),
        (b'{"choices":[{"index":0,"delta":{"content":"x"}}]}', FAILURE_REASON_UPSTREAM),
    ],
)
def test_an_event_that_is_named_an_error_is_one(data: bytes, reason: Any) -> None:
    reader = FrameReader("m", OPERATION_CHAT_COMPLETION)
    failure = reader.read_error(data)
    assert failure.reason == reason
    assert "died" not in failure.message
    assert "10.0.0.1" not in failure.message
    reader.read(json.dumps(with_delta({"content": "x"})).encode())
    assert reader.read_error(data).reason == FAILURE_REASON_UPSTREAM


def test_a_byte_order_mark_is_no_part_of_an_answer() -> None:
    text = b'{"model":"w","choices":[{"message":{"content":"\\ud83d"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}'
    chunk = read_whole(b"\xef\xbb\xbf" + text, "m", OPERATION_CHAT_COMPLETION)
    assert chunk.payload == text.replace(b'"w"', b'"m"')
    assert [span.name for span in json_members.spans(chunk.payload)] == ["model", "choices", "usage"]
    assert read(b'\xef\xbb\xbf{"choices":[]}').payload == b'{"choices":[]}'


def test_whole_answers() -> None:
    text = b'{"model":"w", "choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}'
    chunk = read_whole(text, "m", OPERATION_CHAT_COMPLETION)
    assert chunk.payload == text.replace(b'"w"', b'"m"')
    assert chunk.content
    assert chunk.finished == {0: "stop"}
    for bad in (b"{}", b'{"choices":1}', b'{"data":[]}'):
        with pytest.raises(WorkerFailure) as failure:
            read_whole(bad, "m", OPERATION_CHAT_COMPLETION)
        assert failure.value.reason == FAILURE_REASON_INVALID_RESPONSE
    with pytest.raises(WorkerFailure):
        read_whole(b'{"choices":[]}', "m", OPERATION_EMBEDDING)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["a", "model", "usage", 'q"', "\\", "choices", "é", ""])


@given(st.dictionaries(NAMES, JSON, max_size=6), st.sampled_from([None, 1, 2]), st.booleans(), NAMES, st.none() | JSON)
def test_replacing_members_is_what_it_says(
    value: dict[str, Any], indent: int | None, ascii_only: bool, name: str, other: Any
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    expected = dict(value)
    expected.pop(name, None)
    assert json.loads(json_members.replace(text, {name: None})) == expected
    assert json.loads(json_members.replace(text, {name: json.dumps(other).encode()})) == {**value, name: other}
    for span in json_members.spans(text):
        assert json.loads(text[span.value : span.end]) == value[span.name]
    assert json_members.replace(text, {}) == text


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        (OPERATION_EMBEDDING, {"data": []}),
        (OPERATION_EMBEDDING, {"data": [None]}),
        (OPERATION_EMBEDDING, {"data": [{"index": 0, "embedding": []}]}),
        (OPERATION_EMBEDDING, {"data": [{"index": 0, "embedding": [0.5]}, {"index": 1, "embedding": [0.5]}]}),
        (OPERATION_CHAT_COMPLETION, {"choices": [{"index": 0, "text": "x", "finish_reason": "stop"}]}),
        (OPERATION_CHAT_COMPLETION, {"choices": [{"index": 0, "message": "x", "finish_reason": "stop"}]}),
        (OPERATION_COMPLETION, {"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]}),
    ],
)
def test_a_whole_answer_is_of_the_kind_that_was_asked_for(operation: Any, answer: dict[str, Any]) -> None:
    text = json.dumps(answer | {"usage": {"prompt_tokens": 1, "completion_tokens": 1}}).encode()
    with pytest.raises(WorkerFailure) as failure:
        read_whole(text, "m", operation)
    assert failure.value.reason == FAILURE_REASON_INVALID_RESPONSE


def test_a_stream_is_of_the_kind_that_was_asked_for() -> None:
    frames: list[tuple[Any, dict[str, Any]]] = [
        (OPERATION_CHAT_COMPLETION, {"text": "x"}),
        (OPERATION_CHAT_COMPLETION, {"message": {"content": "x"}}),
        (OPERATION_CHAT_COMPLETION, {"delta": "x"}),
        (OPERATION_COMPLETION, {"delta": {"content": "x"}}),
        (OPERATION_COMPLETION, {"text": ["x"]}),
    ]
    for operation, choice in frames:
        with pytest.raises(WorkerFailure) as failure:
            FrameReader("m", operation).read(json.dumps({"choices": [choice]}).encode())
        assert failure.value.reason == FAILURE_REASON_INVALID_RESPONSE
    # A choice that is only about its end is of either kind.
    for operation in (OPERATION_CHAT_COMPLETION, OPERATION_COMPLETION):
        chunk = FrameReader("m", operation).read(b'{"choices":[{"index":0,"finish_reason":"stop"}]}')
        assert chunk.finished == {0: "stop"}
    assert FrameReader("m", OPERATION_COMPLETION).read(b'{"choices":[{"text":"x","delta":{}}]}').content


def test_an_error_in_a_list_is_one() -> None:
    with pytest.raises(WorkerFailure) as failure:
        read([{"error": {"message": "too long for me", "code": 400}}])
    assert (failure.value.reason, failure.value.message) == (FAILURE_REASON_REJECTED, "too long for me")
