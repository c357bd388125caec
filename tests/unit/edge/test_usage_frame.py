"""The bytes of the usage that a client sees."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speedinfer.common.v1.operation_pb2 import Operation
from speedinfer.common.v1.usage_pb2 import Usage

from services.edge import sse, usage_frame

CHAT, COMPLETION = Operation.OPERATION_CHAT_COMPLETION, Operation.OPERATION_COMPLETION
USAGE = Usage(prompt_tokens=12, completion_tokens=5)
FRAME = (
    b'{"id":"c1", "choices":[{"index":0,"delta":{"content":"x"}}],'
    b'"usage":{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17}}'
)
CHARGED = b'{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17,"cost":0.000005400}'
CACHED = b'"prompt_tokens_details":{"cached_tokens": 3}'


@pytest.mark.parametrize(
    ("operation", "asked", "choices"),
    [
        (CHAT, True, b"[]"),
        (COMPLETION, True, b"[]"),
        (CHAT, False, b'[{"index":0,"delta":{},"finish_reason":null}]'),
        (COMPLETION, False, b'[{"index":0,"text":"","finish_reason":null}]'),
    ],
)
def test_the_frame(operation: Operation.ValueType, asked: bool, choices: bytes) -> None:
    made = usage_frame.client_frame(FRAME, USAGE, 5400, operation, asked=asked)
    assert made == b'{"id":"c1","choices":%b,"usage":%b}' % (choices, CHARGED)


@pytest.mark.parametrize(
    ("worker_s", "expected"),
    [
        (b"null", CHARGED),
        (b"{}", CHARGED),
        # Counts that differ from what is charged (one choice of several) are put right, and the total with them.
        (
            b'{"completion_tokens":3,"prompt_tokens":12,"total_tokens":15}',
            b'{"completion_tokens":5,"prompt_tokens":12,"total_tokens":17,"cost":0.000005400}',
        ),
        # A worker's details stay; its own total and cost do not.
        (
            b'{"prompt_tokens":12,"completion_tokens":5,"total_tokens":99,"cost":1,%b}' % CACHED,
            b'{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17,%b,"cost":0.000005400}' % CACHED,
        ),
    ],
)
def test_the_usage_object(worker_s: bytes, expected: bytes) -> None:
    assert usage_frame.usage_object(worker_s, USAGE, 5400) == expected


@pytest.mark.parametrize(("reported", "charged", "shown"), [(3, 3, b"3"), (99, 12, b"12"), (99, 99, b"12")])
def test_the_cached_count_is_the_one_that_was_charged(reported: int, charged: int, shown: bytes) -> None:
    usage = Usage(prompt_tokens=12, cached_prompt_tokens=charged, completion_tokens=5)
    text = b'{"prompt_tokens":12,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":%d}}' % reported
    assert b'"prompt_tokens_details":{"cached_tokens":%b}' % shown in usage_frame.usage_object(text, usage, 5400)


def test_an_unknown_cost_is_left_out_and_a_zero_is_not() -> None:
    assert b"cost" not in usage_frame.usage_object(b"{}", USAGE, None)
    assert b'"cost":0.000000000' in usage_frame.usage_object(b"{}", USAGE, 0)


def test_embeddings_have_no_completion_count() -> None:
    made = usage_frame.usage_object(b"{}", Usage(prompt_tokens=8), 10)
    assert made == b'{"prompt_tokens":8,"total_tokens":8,"cost":0.000000010}'


@pytest.mark.parametrize(
    "body",
    [
        b'{ "a" : [1,  2],\n "usage" :\t{"prompt_tokens":12, "completion_tokens":5} , "z":1.50 }',
        # The same object elsewhere, nested and as text.
        b'{"usage":{"prompt_tokens":12,"completion_tokens":5},"c":[{"usage":{"prompt_tokens":12,"completion_tokens":5}}]}',
        b'{"c":{"usage":{"prompt_tokens":12,"completion_tokens":5}},"usage":{"prompt_tokens":12,"completion_tokens":5}}',
    ],
)
def test_a_whole_answer_keeps_every_other_byte(body: bytes) -> None:
    made = usage_frame.whole_answer(body, USAGE, 5400)
    assert json.loads(made)["usage"]["cost"] == 5.4e-06
    before, after = made.split(CHARGED)
    assert body.startswith(before)
    assert body.endswith(after)


def test_a_name_that_stands_twice_stands_once() -> None:
    body = b'{"usage":{"prompt_tokens":1},"t":"\\"usage\\":{}","usage":{"prompt_tokens":12,"completion_tokens":5}}'
    made = usage_frame.whole_answer(body, USAGE, 5400)
    assert made == b'{"usage":%b,"t":"\\"usage\\":{}"}' % CHARGED


@pytest.mark.parametrize("body", [b'{"a":1}', b'{"usage":null,"b":null}', b'{"us\\u0061ge":{"prompt_tokens":12}}'])
def test_a_whole_answer_without_a_usage_object_gets_one(body: bytes) -> None:
    made = json.loads(usage_frame.whole_answer(body, USAGE, 5400))
    assert made["usage"] == {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17, "cost": 5.4e-06}


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"null"])
def test_what_is_no_object_is_said(text: bytes) -> None:
    with pytest.raises(ValueError, match="not a JSON object"):
        usage_frame.client_frame(text, USAGE, 1, CHAT, asked=True)


@given(
    st.lists(st.dictionaries(st.text(), st.text() | st.integers(), max_size=3), max_size=4), st.sampled_from([None, 2])
)
def test_events_are_one_line_each(values: list[dict[str, str | int]], indent: int | None) -> None:
    payloads = [json.dumps(value, indent=indent).encode() for value in values]
    events = sse.encode(payloads).split(b"\n\n")
    assert events[-1] == b""
    assert [json.loads(event.removeprefix(b"data: ")) for event in events[:-1]] == values
    if indent is None:
        assert events[:-1] == [b"data: " + payload for payload in payloads]


def test_half_a_surrogate_pair_is_no_reason_to_lose_an_answer() -> None:
    body = b'{"choices":[{"message":{"content":"x\\ud83d"}}],"usage":{"prompt_tokens":12,"completion_tokens":5}}'
    made = usage_frame.whole_answer(body, USAGE, 5400)
    assert json.loads(made)["usage"] == json.loads(CHARGED)
    assert made.partition(b',"usage"')[0] == body.partition(b',"usage"')[0]
    # Numbers that no parser of ours would write again stay as they are, and so does every member of a frame.
    frame = b'{"big":1E400,"t":"\\ud83d","usage":{"prompt_tokens":12,"t":"\\ude00","big":1E400}}'
    made = usage_frame.client_frame(frame, USAGE, None, CHAT, asked=True)
    assert made.startswith(b'{"big":1E400,"t":"\\ud83d","usage":{"prompt_tokens":12,"t":"\\ude00","big":1E400,')


@pytest.mark.parametrize("text", [b"[]", b'{"a":NaN}', b"\xff{}", b"", b'{"a":' * 100_000])
def test_what_is_no_object_is_told(text: bytes) -> None:
    with pytest.raises(ValueError):
        usage_frame.whole_answer(text, USAGE, 5400)


@pytest.mark.parametrize("details", ["[1]", '"3"', "7", "true"])
def test_details_that_are_no_object_are_left_out(details: str) -> None:
    text = f'{{"prompt_tokens":1,"prompt_tokens_details":{details},"completion_tokens_details":{details}}}'.encode()
    made = json.loads(usage_frame.usage_object(text, Usage(prompt_tokens=1, completion_tokens=2), None))
    assert made == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    kept = json.loads(usage_frame.usage_object(b'{"prompt_tokens_details":null}', Usage(prompt_tokens=1), None))
    assert kept["prompt_tokens_details"] is None
