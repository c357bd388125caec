"""How an answer ended: every shape of usage and of finishing, as a table of frames and verdicts."""

import json
from typing import Any

import pytest
from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION, OPERATION_EMBEDDING
from speedinfer.router.v1.frame_pb2 import FAILURE_REASON_UPSTREAM, FAILURE_REASON_USAGE_MISSING

from services.router.answer import Answer, Complete, Incomplete
from services.router.transport.openai_frames import FrameReader, read_whole
from services.router.usage import Usage

UPSTREAM, NO_USAGE = FAILURE_REASON_UPSTREAM, FAILURE_REASON_USAGE_MISSING


def counts(prompt: Any = 10, completion: Any = 5, **more: Any) -> dict[str, Any]:
    """A usage object."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, **more}


def choice(text: str = "x", index: int = 0, reason: str | None = None, **more: Any) -> dict[str, Any]:
    """A frame with one choice."""
    return {
        "id": "i",
        "model": "m",
        "choices": [{"index": index, "delta": {"content": text}, "finish_reason": reason}],
        **more,
    }


STOP = choice("", reason="stop")


def read(frames: list[dict[str, Any]], choices: int = 1) -> Answer:
    """An answer that consists of these frames."""
    reader = FrameReader("m", OPERATION_CHAT_COMPLETION)
    answer = Answer(OPERATION_CHAT_COMPLETION, True, choices)
    for frame in frames:
        answer.take(reader.read(json.dumps(frame).encode()))
    return answer


COMPLETE: list[tuple[str, list[dict[str, Any]], Usage]] = [
    ("final frame", [choice(), STOP, {"choices": [], "usage": counts()}], Usage(10, None, 5)),
    ("no choices key", [choice(), STOP, {"usage": counts()}], Usage(10, None, 5)),
    ("null choices", [choice(), STOP, {"choices": None, "usage": counts()}], Usage(10, None, 5)),
    ("on the last choice", [choice(), choice("", reason="stop", usage=counts())], Usage(10, None, 5)),
    ("null before", [choice(usage=None), {**STOP, "usage": None}, {"usage": counts()}], Usage(10, None, 5)),
    ("empty before", [choice(usage={}), STOP, {"usage": counts()}], Usage(10, None, 5)),
    ("empty after", [choice(), STOP, {"usage": counts()}, {"usage": {}}], Usage(10, None, 5)),
    ("null after", [choice(), STOP, {"usage": counts()}, {"usage": None}], Usage(10, None, 5)),
    ("cumulative", [choice(usage=counts(10, n)) for n in (1, 4, 5, 99)] + [STOP], Usage(10, None, 99)),
    ("cumulative then final", [choice(usage=counts(64, 13)), STOP, {"usage": counts(64, 20)}], Usage(64, None, 20)),
    ("repeated", [choice(), STOP, {"usage": counts()}, {"usage": counts()}], Usage(10, None, 5)),
    ("explicit zero", [choice(), STOP, {"usage": counts(0, 0)}], Usage(0, None, 0)),
    ("zero prompt", [choice(), STOP, {"usage": counts(0, 7)}], Usage(0, None, 7)),
    ("in two parts", [{"choices": [], "usage": {"prompt_tokens": 8}}, choice(), STOP, {"usage": {"completion_tokens": 3}}],
     Usage(8, None, 3)),
    ("cached", [choice(), STOP, {"usage": counts(prompt_tokens_details={"cached_tokens": 4})}], Usage(10, 4, 5)),
    ("more cached than asked", [choice(), STOP, {"usage": counts(prompt_tokens_details={"cached_tokens": 11})}],
     Usage(10, 10, 5)),
    ("null details", [choice(), STOP, {"usage": counts(prompt_tokens_details=None)}], Usage(10, None, 5)),
    ("malformed, then well", [choice(usage=counts("1", 1)), STOP, {"usage": counts()}], Usage(10, None, 5)),
    ("usage before the end", [choice(usage=counts()), STOP], Usage(10, None, 5)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "frames", "usage"), COMPLETE, ids=[row[0] for row in COMPLETE])
def test_complete(name: str, frames: list[dict[str, Any]], usage: Usage) -> None:
    verdict = read(frames).finish()
    assert isinstance(verdict, Complete), verdict
    assert verdict.usage == usage
    frame = json.loads(verdict.usage_frame)
    assert frame["choices"] == []
    assert frame["usage"]["prompt_tokens"] == usage.prompt
    assert frame["usage"]["completion_tokens"] == usage.completion


INCOMPLETE: list[tuple[str, list[dict[str, Any]], Any]] = [
    ("nothing", [], UPSTREAM),
    ("no finish", [choice(), {"usage": counts()}], UPSTREAM),
    ("no finish, no usage", [choice()], UPSTREAM),
    ("abort", [choice(), choice("", reason="abort"), {"usage": counts()}], UPSTREAM),
    ("cancelled", [choice("", reason="cancelled"), {"usage": counts()}], UPSTREAM),
    ("timeout", [choice("", reason="timeout"), {"usage": counts()}], UPSTREAM),
    ("error", [choice("", reason="error"), {"usage": counts()}], UPSTREAM),
    ("loud abort", [choice("", reason="ABORT"), {"usage": counts()}], UPSTREAM),
    ("loud error", [choice("", reason="Error"), {"usage": counts()}], UPSTREAM),
    *(
        (f"reason {word!r}", [choice(), choice("", reason=word), {"usage": counts()}], UPSTREAM)
        for word in ("abort ", "internal_error", "request_cancelled", "timed out", "DEADLINE_EXCEEDED", "failure")
    ),
    ("empty reason", [choice("", reason=""), {"usage": counts()}], UPSTREAM),
    ("no usage", [choice(), STOP], NO_USAGE),
    ("null usage", [choice(), STOP, {"choices": [], "usage": None}], NO_USAGE),
    ("empty usage", [choice(), STOP, {"choices": [], "usage": {}}], NO_USAGE),
    ("a list", [choice(), STOP, {"choices": [], "usage": [1]}], NO_USAGE),
    ("only prompt", [choice(), STOP, {"usage": {"prompt_tokens": 3}}], NO_USAGE),
    ("only completion", [choice(), STOP, {"usage": {"completion_tokens": 3}}], NO_USAGE),
    ("only total", [choice(), STOP, {"usage": {"total_tokens": 3}}], NO_USAGE),
    ("negative", [choice(), STOP, {"usage": counts(10, -1)}], NO_USAGE),
    ("text", [choice(), STOP, {"usage": counts("10", 5)}], NO_USAGE),
    ("fraction", [choice(), STOP, {"usage": counts(10, 5.0)}], NO_USAGE),
    ("bool", [choice(), STOP, {"usage": counts(10, True)}], NO_USAGE),
    ("too large", [choice(), STOP, {"usage": counts(10, 2**31)}], NO_USAGE),
    ("far too large", [choice(), STOP, {"usage": counts(10, 10**30)}], NO_USAGE),
    ("malformed after well", [choice(usage=counts()), STOP, {"usage": counts(10, -5)}], NO_USAGE),
    ("malformed cached", [choice(), STOP, {"usage": counts(prompt_tokens_details={"cached_tokens": -1})}], NO_USAGE),
]  # fmt: skip


@pytest.mark.parametrize(("name", "frames", "reason"), INCOMPLETE, ids=[row[0] for row in INCOMPLETE])
def test_incomplete(name: str, frames: list[dict[str, Any]], reason: Any) -> None:
    verdict = read(frames).finish()
    assert isinstance(verdict, Incomplete)
    assert verdict.reason == reason


def test_counts_of_choices_are_summed_and_the_prompt_counts_once() -> None:
    frames = [
        choice("a", 0, usage=counts(10, 1)),
        choice("b", 1, usage=counts(10, 1)),
        choice("", 0, "stop", usage=counts(10, 4)),
        choice("", 1, "length", usage=counts(10, 6)),
    ]
    answer = read(frames[:2], choices=2)
    assert answer.usage_so_far == Usage(10, None, 2)
    verdict = read(frames, choices=2).finish()
    assert isinstance(verdict, Complete)
    assert verdict.usage == Usage(10, None, 10)
    assert json.loads(verdict.usage_frame)["usage"]["completion_tokens"] == 10


def test_a_count_that_cannot_be_one_leaves_nothing_to_charge() -> None:
    frames = [choice("a", 0, usage=counts(10, 1)), choice("b", 1, usage=counts(10, 3))]
    assert read(frames, choices=2).usage_so_far == Usage(10, None, 4)
    assert read([*frames, choice("c", 0, usage=counts(10, -1))], choices=2).usage_so_far is None
    assert read([frames[0], choice("c", 0, usage=counts(10, "2"))]).usage_so_far is None
    assert read([*frames, choice("c", 0, usage=counts(10, -1)), frames[0]], choices=2).usage_so_far == Usage(
        10, None, 4
    )


def test_a_frame_without_choices_is_the_total() -> None:
    frames = [choice("a", 0, "stop", usage=counts(10, 4)), choice("b", 1, "stop", usage=counts(10, 6))]
    verdict = read([*frames, {"choices": [], "usage": counts(10, 11)}], choices=2).finish()
    assert isinstance(verdict, Complete)
    assert verdict.usage == Usage(10, None, 11)


def test_the_last_word_counts_whether_it_is_of_the_whole_or_of_a_choice() -> None:
    early = {"choices": [], "usage": counts(9, 0)}
    both = {"choices": [{"index": 0, "delta": {}}, {"index": 1, "delta": {}}], "usage": counts(9, 2)}
    ends = [choice("a", 0, "stop", usage=counts(9, 3)), choice("b", 1, "stop", usage=counts(9, 4))]
    for before in (early, both):
        verdict = read([before, *ends], choices=2).finish()
        assert isinstance(verdict, Complete)
        assert verdict.usage == Usage(9, None, 7)
    # Until every choice is counted, what shows more is what is known.
    assert read([early, ends[0]], choices=2).usage_so_far == Usage(9, None, 3)
    assert read([{"choices": [], "usage": counts(9, 5)}, ends[0]], choices=2).usage_so_far == Usage(9, None, 5)
    assert read([early, choice("a", 0, usage=counts(9, -1))], choices=2).usage_so_far is None


def test_a_sum_that_no_count_can_be_is_none() -> None:
    frames = [choice("a", index, "stop", usage=counts(9, 2**31 - 1)) for index in (0, 1)]
    verdict = read(frames, choices=2).finish()
    assert isinstance(verdict, Incomplete)
    assert verdict.reason == NO_USAGE


def test_a_choice_without_counts_leaves_the_whole_without() -> None:
    verdict = read([choice("a", 0, "stop", usage=counts()), choice("b", 1, "stop")], choices=2).finish()
    assert isinstance(verdict, Incomplete)
    assert verdict.reason == NO_USAGE


def test_every_choice_must_finish() -> None:
    frames = [choice("a", 0, "stop"), {"choices": [], "usage": counts()}]
    assert isinstance(read(frames, choices=2).finish(), Incomplete)
    assert isinstance(read([choice("b", 1, "stop"), *frames], choices=2).finish(), Complete)


def test_a_choice_that_was_given_up_stays_so() -> None:
    usage_frame = {"choices": [], "usage": counts()}
    for reasons in (("abort", "stop"), ("stop", "abort"), ("Timeout", "length")):
        frames = [choice("a", 0, reasons[0]), choice("", 0, reasons[1]), usage_frame]
        assert isinstance(read(frames).finish(), Incomplete), reasons
        assert not read(frames).is_complete


@pytest.mark.parametrize(
    "word",
    ["stop", " stop", "length", "tool_calls", "content_filter", "function_call", "eos_token", "stop_sequence", "max_tokens",
     "end_turn", "tool_use", "eos", "STOP", "repetition", "recitation", "safety", "time_limit_reached"],
)  # fmt: skip
def test_words_of_servers_for_a_good_end(word: str) -> None:
    assert isinstance(read([choice("a", 0, word), {"choices": [], "usage": counts()}]).finish(), Complete)


def test_a_word_that_is_shown_is_safe_and_short() -> None:
    verdict = read([choice("a", 0, "error_" + "x" * 900), {"choices": [], "usage": counts()}]).finish()
    assert isinstance(verdict, Incomplete)
    assert len(verdict.message) < 120
    assert "error_xxx" in verdict.message


def test_each_of_the_choices_that_were_asked_for_finishes() -> None:
    usage_frame = {"choices": [], "usage": counts()}
    for index in (7, -1):
        frames = [choice("a", 0, "stop"), choice("b", index, "stop"), usage_frame]
        assert isinstance(read(frames, choices=2).finish(), Incomplete)
    # A lone choice may have any index.
    assert isinstance(read([choice("a", 1, "stop"), usage_frame]).finish(), Complete)


def test_counts_of_each_choice_with_its_finish_are_the_last() -> None:
    frames = [choice("a", 0, "stop", usage=counts(10, 1)), choice("b", 1, "stop", usage=counts(10, 2))]
    assert read(frames, choices=2).is_complete
    early = [choice("a", 0, usage=counts(10, 1)), choice("b", 1, usage=counts(10, 2)), *frames[:0]]
    finished = [*early, choice("", 0, "stop"), choice("", 1, "stop")]
    assert not read(finished, choices=2).is_complete
    assert read(finished, choices=2).may_stand


def test_complete_means_that_nothing_can_change_any_more() -> None:
    frames = [choice(usage=counts(10, 4)), STOP, {"choices": [], "usage": counts(10, 5)}]
    assert [read(frames[:number]).is_complete for number in range(4)] == [False, False, False, True]
    assert read([choice(usage=counts()), choice("", reason="stop", usage=counts())]).is_complete


def test_the_workers_own_usage_frame_is_kept_as_it_is() -> None:
    text = b'{ "model":"m",  "choices":[], "usage":{"prompt_tokens":1,"completion_tokens":2,"x":[1 ,2]} }'
    answer = read([choice(), STOP])
    answer.take(FrameReader("m", OPERATION_CHAT_COMPLETION).read(text))
    verdict = answer.finish()
    assert isinstance(verdict, Complete)
    assert verdict.usage_frame == text


@pytest.mark.parametrize(
    ("usage", "complete"),
    [({"prompt_tokens": 3, "total_tokens": 3}, True), ({}, False), (None, False), ({"prompt_tokens": 0}, True)],
)
def test_embeddings_need_only_the_prompts_count(usage: Any, complete: bool) -> None:
    answer = Answer(OPERATION_EMBEDDING, False, 1)
    text = json.dumps({"data": [{"embedding": [1]}], "usage": usage}).encode()
    answer.take(read_whole(text, "m", OPERATION_EMBEDDING))
    verdict = answer.finish()
    assert isinstance(verdict, Complete) == complete
    if isinstance(verdict, Complete):
        assert verdict.usage_frame == b""
