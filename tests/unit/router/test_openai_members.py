"""Odd members of frames and of whole answers: what says nothing, what stands twice, what is of a kind that nobody reads."""

import json
from typing import Any

import pytest
from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION, OPERATION_COMPLETION, OPERATION_EMBEDDING
from speedinfer.router.v1.frame_pb2 import FAILURE_REASON_INVALID_RESPONSE, FAILURE_REASON_UPSTREAM

from services.router.transport.openai_frames import FrameReader, read_whole
from services.router.transport.port import WorkerFailure
from services.router.usage import Usage
from tests.unit.router.test_openai_frames import read, with_delta

COUNTS = {"prompt_tokens": 1, "completion_tokens": 1}


@pytest.mark.parametrize(
    "frame",
    [
        {"choices": [], "usage": COUNTS, "message": ""},
        {"choices": [], "usage": COUNTS, "detail": "", "errors": {}, "msg": "ok", "code": 0},
        {"choices": {}, "usage": COUNTS},
        {"choices": False, "usage": COUNTS},
        {"choices": "", "usage": COUNTS, "exception": "", "fault": {}},
        {"choices": [], "usage": COUNTS, "error": {"message": " ", "code": 0, "param": None, "details": [{}]}},
        {"choices": [{"index": 0, "delta": {"content": "x"}, "error": {}}], "usage": COUNTS, "error": ""},
        {"msg": "ok", "code": 0},
        {"message": "Success", "code": "200"},
        {"error": False, "code": 200},
    ],
)
def test_members_with_nothing_in_them_are_no_error(frame: dict[str, Any]) -> None:
    chunk = read(frame)
    assert chunk.usage == (Usage(1, None, 1) if "usage" in frame else None)


def test_a_frame_of_usage_and_an_empty_error_is_about_usage_alone() -> None:
    assert read({"choices": [], "usage": COUNTS, "error": {}}).payload is None
    assert read({"choices": [], "usage": COUNTS, "error": {}, "x": 1}).payload == b'{"choices": [], "x": 1}'


@pytest.mark.parametrize(
    "frame",
    [
        {"usage": COUNTS, "message": "at 10.1.2.3:8000"},
        {"usage": COUNTS, "message": "the engine is tired", "code": 500},
        {"usage": COUNTS, "message": {"x": 1}},
        {"message": "the engine at 10.1.2.3:8000", "code": 0},
        {"message": "ok", "code": False},
        {"choices": [], "message": "the engine is tired"},
        {"choices": [], "detail": [["x"]]},
        {"message": ""},
        {"errors": {}},
    ],
)
def test_a_message_without_an_answer_is_an_error(frame: dict[str, Any]) -> None:
    with pytest.raises(WorkerFailure) as failure:
        read(frame)
    assert failure.value.reason == FAILURE_REASON_UPSTREAM


BEFORE = b'{"a": 1, "choices":[{"index":0,"delta":{"content":"x"}}]'
TOLD = b'{"message":"at 10.0.0.9:8000 /opt/secret.py"}'


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        (BEFORE + b', "error":' + TOLD + b', "error": null}', BEFORE + b"}"),
        (BEFORE + b', "\\u0065rror":' + TOLD + b', "error": null}', BEFORE + b"}"),
        (BEFORE + b', "error":' + TOLD + b', "err\\u006fr": null}', BEFORE + b"}"),
        (BEFORE + b', "Exception":' + TOLD + b', "Exception": ""}', BEFORE + b"}"),
        (BEFORE + b', "message":"at 10.0.0.9:8000", "message": ""}', BEFORE + b"}"),
        # Libraries take what is called so for an error, whatever is in it.
        (BEFORE + b', "error": {"message":""}}', BEFORE + b"}"),
        (BEFORE + b', "error": []}', BEFORE + b"}"),
        (BEFORE + b', "error": "", "Fault": false}', BEFORE + b"}"),
        (BEFORE + b', "error": null }', BEFORE + b', "error": null }'),
        (
            BEFORE + b', "\\u0065rror": null, "x": {"error": null} }',
            BEFORE + b', "\\u0065rror": null, "x": {"error": null} }',
        ),
    ],
)
def test_an_error_that_is_taken_back_is_told_to_nobody(text: bytes, payload: bytes) -> None:
    assert read(text).payload == payload
    whole = text.replace(b'"delta"', b'"message"')
    assert read_whole(whole, "m", OPERATION_CHAT_COMPLETION).payload == payload.replace(b'"delta"', b'"message"')


@pytest.mark.parametrize(
    ("choice", "good"),
    [
        (b'"finish_reason":"abort","finish_reason":"stop"', False),
        (b'"finish_reason":"length","finish_re\\u0061son":"stop"', False),
        (b'"finish_reason":"length","finish_r\\u0065ason":"stop"', False),
        (b'"error":{"message":"x"},"error":null', False),
        (b'"delta":{"error":"x","error":null}', False),
        (b'"finish_reason":null,"finish_reason":"stop","x":1E999', True),
        (b'"finish_reason":"stop","finish_reason":"stop"', True),
        (b'"error":null,"delta":{"error":null,"content":"\\u0065","x":"error"}', True),
    ],
)
def test_a_choice_says_one_thing_of_its_end(choice: bytes, good: bool) -> None:
    text = b'{"choices":[{"index":0,' + choice + b"}]}"
    if good:
        assert read(text).payload == text
        return
    with pytest.raises(WorkerFailure) as failure:
        read(text)
    assert failure.value.reason == FAILURE_REASON_INVALID_RESPONSE


def test_numbers_of_any_size_are_read_and_relayed() -> None:
    for number in (b"1e999", b"-1E400", b"9" * 6000, b"-" + b"9" * 6000):
        text = b'{"x":' + number + b',"choices":[],"y":{"z":' + number + b"}}"
        assert read(text).payload == text
        counted = b'{"choices":[],"x":' + number + b',"usage":{"prompt_tokens":12,"completion_tokens":5}}'
        assert read(counted).usage == Usage(12, None, 5)
        assert read(counted.replace(b"12", number)).usage == Usage(None, None, 5, malformed=True)


def test_json_is_read_down_to_1024_levels() -> None:
    def nested(levels: int) -> bytes:
        return b'{"choices":[],"x":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"

    assert read(nested(1024)).payload == nested(1024)
    with pytest.raises(WorkerFailure):
        read(nested(1025))


@pytest.mark.parametrize("reason", ["error at 10.0.0.9:8000", "failed: /opt/models/secret.plan", "Bearer abcdefgh"])
def test_no_finish_reason_tells_where_a_worker_is(reason: str) -> None:
    with pytest.raises(WorkerFailure) as failure:
        read(with_delta({}, finish_reason=reason))
    assert failure.value.reason == FAILURE_REASON_INVALID_RESPONSE


@pytest.mark.parametrize("delta", [{"content": 5}, {"content": 0}, {"content": {"x": 1}}, {"tool_calls": {"x": 1}}])
def test_content_is_a_text_or_parts(delta: dict[str, Any]) -> None:
    for attempt in (
        lambda: read(with_delta(delta)),
        lambda: read_whole(
            json.dumps({"choices": [{"message": delta, "finish_reason": "stop"}]}).encode(),
            "m",
            OPERATION_CHAT_COMPLETION,
        ),
    ):
        with pytest.raises(WorkerFailure) as failure:
            attempt()
        assert failure.value.reason == FAILURE_REASON_INVALID_RESPONSE


def test_what_another_routes_clients_read_is_no_content() -> None:
    assert not read({"choices": [{"index": 0, "delta": {}, "text": "x"}]}).content
    completion = FrameReader("m", OPERATION_COMPLETION)
    assert not completion.read(b'{"choices":[{"text":"","delta":{"content":"x"}}]}').content
    assert completion.read(b'{"choices":[{"text":"x"}]}').content
    answer = b'{"choices":[{"message":{},"text":"x","finish_reason":"stop"}]}'
    assert not read_whole(answer, "m", OPERATION_CHAT_COMPLETION).content


V = [0.25, -1, 1e9]


@pytest.mark.parametrize(
    ("data", "good"),
    [
        ([{"index": 0, "embedding": V}, {"index": 1, "embedding": "AAAAAA=="}], True),
        ([{"index": 1, "embedding": V}, {"index": 0, "embedding": V}], True),
        ([{"embedding": [V]}, {"embedding": [V, V], "index": None}], True),
        ([{"index": 0, "embedding": V}, {"index": 0, "embedding": V}], False),
        ([{"index": 0, "embedding": V}, {"index": 9, "embedding": V}], False),
        ([{"index": 0, "embedding": V}, {"index": True, "embedding": V}], False),
        ([{"index": 0, "embedding": V}, {"index": "1", "embedding": V}], False),
        *(
            ([{"index": 0, "embedding": V}, {"index": 1, "embedding": vector}], False)
            for vector in (
                True, 1, "", [], [[]], [V, []], [V, 1], [1, V], ["a"], [True], [None, 1], {"values": [1]}, [{"x": 1}], [[V]],
            )
        ),
    ],
)  # fmt: skip
def test_embeddings_are_vectors_of_the_inputs(data: list[Any], good: bool) -> None:
    text = json.dumps({"data": data, "usage": {"prompt_tokens": 1}}).encode()
    if good:
        assert read_whole(text, "m", OPERATION_EMBEDDING, 2).payload == text
        return
    with pytest.raises(WorkerFailure) as failure:
        read_whole(text, "m", OPERATION_EMBEDDING, 2)
    assert failure.value.reason == FAILURE_REASON_INVALID_RESPONSE
