"""Frames that are the one before with another text in it: read as if each came alone."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION, OPERATION_COMPLETION

from services.router.transport import openai_frames
from services.router.transport.openai_frames import FrameReader
from services.router.transport.port import WorkerFailure

FIRST = b'{"id":"a","model":"w","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]%s}'
COUNTS = b',"usage":{"prompt_tokens":3,"completion_tokens":%d}'
OPERATIONS = (OPERATION_CHAT_COMPLETION, OPERATION_COMPLETION)


def outcome(reader: FrameReader, text: bytes) -> Any:
    """The chunk, or what the failure says of the frame."""
    try:
        return reader.read(text)
    except WorkerFailure as failure:
        return failure.reason, failure.message, failure.detail


def in_full(model: str, operation: Any, text: bytes) -> Any:
    """What the frame is to a reader that has seen content, but nothing like it."""
    reader = FrameReader(model, operation)
    reader._first = False
    return outcome(reader, text)


def mostly(plain: st.SearchStrategy[Any], odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The plain, but for one in eight."""
    return st.integers(0, 7).flatmap(lambda number: odd if number == 7 else plain)


TEXTS = st.text(max_size=12) | st.sampled_from(
    [
        "",
        "\\",
        '"',
        '"content"',
        '"content":"',
        '"usage"',
        '"finish_reason"',
        '"error":"x"',
        "\ud83d",
        "\n",
        "\x7f",
        "née 🚀",
    ]
)
# Most frames of a stream are like one another, or there is nothing to compare.
PLAIN = st.sampled_from(["a", "bc", " the"])
NAMES = st.just("content") | st.sampled_from(
    ["content", "reasoning_content", "reasoning", "role", "text", "refusal", "error", "tool_calls"]
)
NUMBERS = st.sampled_from([0, 1, 7, 12, 2**31 - 1, 2**31, -1, 1.5, True, None, "5"])
USAGES = st.none() | st.fixed_dictionaries(
    {"prompt_tokens": mostly(st.just(7), NUMBERS), "completion_tokens": mostly(st.integers(0, 99), NUMBERS)},
    optional={
        "total_tokens": st.just(3),
        "prompt_tokens_details": st.none() | st.just({"cached_tokens": 1}),
        "error": st.none(),
    },
)


@st.composite
def skeletons(draw: st.DrawFn) -> dict[str, Any]:
    """A frame's members but for what differs from frame to frame; in any order."""
    members: dict[str, Any] = {
        "id": draw(TEXTS),
        "model": draw(mostly(st.sampled_from(["m", "w"]), st.sampled_from(["content", "usage", None, 1]))),
    }
    if draw(mostly(st.just(False), st.just(True))):
        members[draw(st.sampled_from(["created", "message", "error", "errors", "content", "x"]))] = draw(
            st.sampled_from([None, 1, {}, "content", {"usage": None}])
        )
    members["choices"] = None
    if draw(st.booleans()):
        members["usage"] = None
    names = draw(mostly(st.just(list(members)), st.permutations(sorted(members))))
    return {name: members[name] for name in names}


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Frames that are much alike."""
    skeleton = draw(skeletons())
    name = draw(NAMES)
    ascii_only, compact = draw(st.booleans()), draw(st.booleans())
    choices = draw(mostly(st.just(1), st.just(2)))
    frames: list[bytes] = []
    for _ in range(draw(st.integers(2, 4))):
        said = draw(mostly(PLAIN, TEXTS))
        choice = {
            "index": 0,
            "delta": {name: said},
            "text": said,
            "finish_reason": draw(mostly(st.none(), st.just("stop"))),
        }
        if name != "text":
            choice.pop("text")
        frame = {**skeleton, "choices": [choice] * choices}
        if "usage" in skeleton:
            frame["usage"] = draw(USAGES)
        text = json.dumps(frame, ensure_ascii=ascii_only, separators=(",", ":") if compact else None)
        written = text.encode("utf-8", "surrogatepass")
        if draw(mostly(st.just(False), st.just(True))):
            # A byte that is another, or one too many.
            place = draw(st.integers(0, len(written)))
            written = (
                written[:place]
                + draw(st.sampled_from([b"", b'"', b"\\", b"}", b"\xff", b"\n", b"\\u0064"]))
                + written[place + 1 :]
            )
        frames.append(written)
    return frames


@settings(max_examples=60)
@given(streams(), st.sampled_from(OPERATIONS))
@example([FIRST % b"", FIRST.replace(b'"x"', b'"y\\u0041\\n\\""') % b""], OPERATION_CHAT_COMPLETION)
@example([FIRST % (COUNTS % 1), FIRST.replace(b'"x"', b'"y"') % (COUNTS % 2)], OPERATION_CHAT_COMPLETION)
@example([FIRST % (COUNTS % 1), FIRST % b',"usage":{"prompt_tokens":3,}'], OPERATION_CHAT_COMPLETION)
@example([FIRST % (COUNTS % 1), FIRST % b',"usage":{"prompt_tokens":3},"error":{"a":1}'], OPERATION_CHAT_COMPLETION)
def test_a_frame_of_a_stream_is_what_it_is_alone(frames: list[bytes], operation: Any) -> None:
    reader = FrameReader("m", operation)
    reader._first = False
    for text in frames:
        assert outcome(reader, text) == in_full("m", operation, text)


@pytest.mark.parametrize(
    ("tail", "next_tail"),
    [(b"", b""), (b',"usage":null', b',"usage":null'), (COUNTS % 1, COUNTS % 2), (b',"created":1', b',"created":1')],
)
@pytest.mark.parametrize("said", [b"y", b'\\n\\"', b"\\u00e9", "né 🚀".encode()])
def test_what_repeats_is_not_parsed_again(
    tail: bytes, next_tail: bytes, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = FrameReader("m", OPERATION_CHAT_COMPLETION)
    reader.read(FIRST % tail)
    text = FIRST.replace(b'"x"', b'"' + said + b'"') % next_tail
    expected = in_full("m", OPERATION_CHAT_COMPLETION, text)
    monkeypatch.setattr(openai_frames, "_object", lambda _text: pytest.fail("parsed"))
    assert reader.read(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        b'{"choices":[{"index":0,"delta":{"content":""}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"a","content":"b"}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"b\xff"}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"b\x01"}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"b\\x"}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"b\\ud83d"}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"b"}}],"error":{"message":"bad"}}',
        b'{"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}',
        b'{"choices":[{"index":0,"delta":{"content":"b"}}]',
        b'{"choices":[{"index":0,"delta":{"content":"b"}}]}}',
    ],
)
def test_what_is_not_quite_the_same_is_read_in_full(text: bytes) -> None:
    reader = FrameReader("m", OPERATION_CHAT_COMPLETION)
    reader.read(b'{"choices":[{"index":0,"delta":{"content":"a"}}]}')
    assert outcome(reader, text) == in_full("m", OPERATION_CHAT_COMPLETION, text)


def test_a_stream_that_never_repeats_itself_is_learned_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[bytes] = []
    learn = openai_frames.openai_repeats.learn
    monkeypatch.setattr(
        openai_frames.openai_repeats, "learn", lambda text, *rest: (learned.append(text), learn(text, *rest))[1]
    )
    reader = FrameReader("m", OPERATION_CHAT_COMPLETION)
    for number in range(20):
        reader.read(b'{"n":%d,"choices":[{"index":0,"delta":{"content":"a"}}]}' % number)
    assert len(learned) == openai_frames.MAX_VAIN + 1
