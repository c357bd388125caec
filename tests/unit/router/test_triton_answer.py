"""From responses to frames and counts."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from speedinfer.common.v1 import operation_pb2

from services.router.answer import Answer, Incomplete
from services.router.transport.port import Activity, Chunk, Done, Event, WorkerFailure
from services.router.transport.triton_answer import AnswerReader, CountReader
from services.router.transport.triton_check import sums_up
from services.router.transport.triton_model import TensorPlan
from services.router.transport.triton_openai import OpenAiWriter
from services.router.transport.triton_request import Asked
from services.router.transport.triton_tensors import Outputs
from services.router.usage import Usage
from tests.unit.router.triton_models import NAMED_INPUTS, NAMED_OUTPUTS, REASONED_INPUTS, REASONED_OUTPUTS, plan

CHAT = operation_pb2.OPERATION_CHAT_COMPLETION
TEXT = operation_pb2.OPERATION_COMPLETION
NAMED = {"prompt_tokens_output_name": "prompt_tokens", "completion_tokens_output_name": "completion_tokens"}


def response(text: str | None, prompt: Any = 3, completion: Any = 1) -> Outputs:
    outputs: dict[str, list[Any]] = {} if text is None else {"text_output": [text.encode()]}
    if prompt is not None:
        outputs["num_input_tokens"] = [prompt]
    if completion is not None:
        outputs["num_output_tokens"] = [completion]
    return outputs


def reader(
    found: TensorPlan | None = None,
    *,
    stream: bool = True,
    limit: int | None = 9,
    stops: tuple[str, ...] = (),
    model_stops: bool = False,
    operation: operation_pb2.Operation.ValueType = CHAT,
    prompt: str = "the prompt",
    max_bytes: int = 1000,
    eos_token: str | None = None,
) -> AnswerReader:
    asked = Asked((), prompt, stream, limit, stops, model_stops, ())
    writer = OpenAiWriter(operation, "acme/m", "r1", 5)
    return AnswerReader(found or plan(), asked, writer, stream=stream, max_bytes=max_bytes, eos_token=eos_token)


def chunks(events: list[Event]) -> list[Chunk]:
    return [event for event in events if isinstance(event, Chunk)]


def run(target: AnswerReader, *responses: Outputs) -> list[Event]:
    return [*(event for each in responses for event in target.read(each)), *target.end()]


def texts(events: list[Event]) -> list[str]:
    bodies = [orjson.loads(chunk.payload) for chunk in chunks(events) if chunk.payload and chunk.content]
    return [body["choices"][0]["delta"]["content"] for body in bodies]


def test_a_stream_is_role_content_finish_usage_done() -> None:
    events = run(reader(limit=2), response("Hel"), response('lo "é"'))
    frames = [orjson.loads(chunk.payload) for chunk in chunks(events) if chunk.payload]
    common = {"id": "chatcmpl-r1", "object": "chat.completion.chunk", "created": 5, "model": "acme/m"}
    deltas = [{"role": "assistant", "content": ""}, {"content": "Hel"}, {"content": 'lo "é"'}, {}]
    reasons = [None, None, None, "length"]
    assert frames == [
        {**common, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}
        for delta, reason in zip(deltas, reasons, strict=True)
    ]
    assert [chunk.content for chunk in chunks(events)] == [False, True, True, False, False]
    assert [chunk.usage for chunk in chunks(events)] == [
        None, Usage(3, None, 1), Usage(3, None, 2), Usage(3, None, 2), Usage(3, None, 2),
    ]  # fmt: skip
    last = chunks(events)[-1]
    assert last.payload is None
    assert last.usage_frame is not None
    assert orjson.loads(last.usage_frame) == {
        **common, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }  # fmt: skip
    assert chunks(events)[-2].finished == {0: "length"}
    assert events[-1] == Done()


def test_a_completion_stream_has_text_and_no_role_frame() -> None:
    events = run(reader(operation=TEXT), response("a"))
    frames = [orjson.loads(chunk.payload) for chunk in chunks(events) if chunk.payload]
    common = {"id": "cmpl-r1", "object": "text_completion", "created": 5, "model": "acme/m"}
    assert frames == [
        {**common, "choices": [{"index": 0, "text": "a", "logprobs": None, "finish_reason": None}]},
        {**common, "choices": [{"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}]},
    ]


@pytest.mark.parametrize(
    ("operation", "part"),
    [(CHAT, {"message": {"role": "assistant", "content": "ab", "refusal": None}}), (TEXT, {"text": "ab"})],
)
def test_a_whole_answer_is_joined(operation: operation_pb2.Operation.ValueType, part: dict[str, Any]) -> None:
    events = run(reader(stream=False, operation=operation), response("a"), response("b"))
    assert events[:2] == [Activity(), Activity()]
    (chunk,) = chunks(events)
    assert chunk.payload is not None
    body = orjson.loads(chunk.payload)
    assert body["object"] == ("chat.completion" if operation == CHAT else "text_completion")
    assert body["choices"] == [{"index": 0, **part, "logprobs": None, "finish_reason": "stop"}]
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    assert (chunk.content, chunk.finished, chunk.usage) == (True, {0: "stop"}, Usage(3, None, 2))


def test_an_answer_without_counts_has_no_usage() -> None:
    events = run(reader(), response("a", None, None))
    assert all(chunk.usage is None and chunk.usage_frame is None for chunk in chunks(events))
    (chunk,) = chunks(run(reader(stream=False), response("a", None, None)))
    assert b"usage" not in (chunk.payload or b"")


def test_half_a_usage_is_no_usage_frame() -> None:
    events = run(reader(), response("a", 3, None))
    assert [chunk.usage_frame for chunk in chunks(events)] == [None, None, None]
    assert chunks(events)[-1].usage == Usage(3, None, None)


@pytest.mark.parametrize("wrong", [-1, 2**31, 1.0, "1", True])
def test_nonsense_spoils_the_total(wrong: Any) -> None:
    events = run(reader(), response("a"), response("b", 3, wrong), response("c"))
    assert chunks(events)[-1].usage == Usage(malformed=True)
    assert all(chunk.usage_frame is None for chunk in chunks(events))


@pytest.mark.parametrize("numbers", [[2**31 - 1, 1], [1, 2**31 - 1]])
def test_a_total_over_the_bound_is_nonsense_and_not_absent(numbers: list[int]) -> None:
    events = run(reader(), *(response("a", 3, number) for number in numbers))
    assert chunks(events)[-1].usage == Usage(malformed=True)
    assert all(chunk.usage_frame is None for chunk in chunks(events))


def test_two_numbers_in_one_count_are_no_count() -> None:
    events = run(reader(), {"text_output": [b"a"], "num_input_tokens": [3], "num_output_tokens": [1, 2]})
    assert chunks(events)[-1].usage == Usage(malformed=True)


def test_less_than_the_prompt_in_an_answer_that_counts_it_is_nonsense() -> None:
    found = replace(plan(), echoes_prompt=True, counts_prompt=True)
    (chunk,) = chunks(run(reader(found, stream=False), response("the prompt", 3, 2)))
    assert chunk.usage == Usage(malformed=True)


def reasoned(text: str, finish: Any, stop: Any = b"None") -> Outputs:
    return {**response(text), "finish_reason": [finish], "stop_reason": [stop]}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("finish", "limit", "reason"),
    [
        (b"length", 9, "length"), (b"stop", 1, "stop"), (b" END_ID ", 1, "stop"), (b"None", 1, "length"),
        (b"N/A", 9, "stop"), (b"", 1, "length"), (b"what", 1, "length"), (7, 1, "length"),
    ],
)  # fmt: skip
def test_the_models_reason_to_finish_stands(stream: bool, finish: Any, limit: int, reason: str) -> None:
    events = run(reader(plan(REASONED_INPUTS, REASONED_OUTPUTS), stream=stream, limit=limit), reasoned("a", finish))
    assert [chunk.finished for chunk in chunks(events) if chunk.finished] == [{0: reason}]
    # A reason that came once is not taken back.
    target = reader(plan(REASONED_INPUTS, REASONED_OUTPUTS), stream=stream, limit=limit)
    late = run(target, reasoned("a", b"length"), reasoned("b", b"None"))
    assert [chunk.finished for chunk in chunks(late) if chunk.finished] == [{0: "length"}]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "word", ["abort", "aborted", "cancelled", "canceled", "timeout", "timed_out", "error", "failed", "Cancelled"]
)
def test_a_model_that_gave_up_shows_no_reason_and_does_not_count(stream: bool, word: str) -> None:
    target = reader(plan(REASONED_INPUTS, REASONED_OUTPUTS), stream=stream, stops=("END",))
    events = run(target, reasoned("text E", word.encode()))
    (last,) = [chunk for chunk in chunks(events) if chunk.finished]
    assert last.payload is None
    verdict = Answer(CHAT, stream, 1)
    for chunk in chunks(events):
        verdict.take(chunk)
    assert isinstance(verdict.finish(), Incomplete)


def test_our_own_stop_wins_over_the_models_reason() -> None:
    for word in (b"length", b"cancelled"):
        events = run(reader(plan(REASONED_INPUTS, REASONED_OUTPUTS), stops=("b",)), reasoned("abc", word))
        assert (texts(events), chunks(events)[-2].finished) == (["a"], {0: "stop"})


@pytest.mark.parametrize(
    ("stop", "shown"), [(b"END", ["one "]), (b"OTHER", ["one ", "E"]), (b"2", ["one ", "E"]), (2, ["one ", "E"])]
)
def test_held_text_is_dropped_where_the_model_names_the_clients_stop(stop: Any, shown: list[str]) -> None:
    target = reader(plan(REASONED_INPUTS, REASONED_OUTPUTS), stops=("END",), model_stops=True)
    assert texts(run(target, reasoned("one E", b"stop", stop))) == shown


def test_a_failure_is_no_success_because_it_names_a_stop() -> None:
    target = reader(plan(REASONED_INPUTS, REASONED_OUTPUTS), stops=("END",))
    events = run(target, reasoned("one", b"timeout", b"END"))
    assert chunks(events)[-1].finished == {0: "timeout"}


def test_the_eos_token_is_cut_at_the_end() -> None:
    events = run(reader(eos_token="</s>"), response("a</s>"), response("b</"), response("s>"))
    assert texts(events) == ["a", "</s>b"]
    # Before a stop sequence it is not the end of anything.
    (chunk,) = chunks(run(reader(eos_token="</s>", stream=False, stops=("END",)), response("a</s>END</s>")))
    assert orjson.loads(chunk.payload or b"")["choices"][0]["message"]["content"] == "a</s>"


def test_a_whole_answer_of_texts_so_far_is_the_last_of_them() -> None:
    found = plan(settings={"text_mode": "cumulative"})
    target = reader(found, stream=False, stops=("END",))
    (chunk,) = chunks(run(target, response("do n"), response("don't END"), response("")))
    assert orjson.loads(chunk.payload or b"")["choices"][0]["message"]["content"] == "don't "
    assert (chunk.finished, chunk.usage) == ({0: "stop"}, Usage(3, None, 3))


@pytest.mark.parametrize("stream", [True, False])
def test_another_text_instead_of_the_text_so_far_is_no_answer_streamed_or_whole(stream: bool) -> None:
    target = reader(plan(settings={"text_mode": "cumulative"}), stream=stream)
    target.read(response("Hello"))
    with pytest.raises(WorkerFailure, match="cannot be read"):
        target.read(response("World"))


def test_one_request_has_one_text() -> None:
    with pytest.raises(WorkerFailure, match="cannot be read"):
        reader().read({"text_output": [b"a", b"b"]})


def test_what_says_its_own_end() -> None:
    found = plan(REASONED_INPUTS, REASONED_OUTPUTS)
    uncounted = {"text_output": [b"a"], "finish_reason": [b"stop"]}
    for outputs, said in (
        (reasoned("a", b"stop"), True),
        (reasoned("a", b"length"), True),
        (reasoned("a", b"None"), False),
        (reasoned("a", b"cancelled"), False),
        (uncounted, False),
        # All that the limit allows was counted, but text may still be to come.
        (response("a", 3, 9), False),
        (response("aEND"), True),
    ):
        target = reader(found, stops=("END",), model_stops=True)
        target.read(outputs)
        assert target.said_its_end is said, outputs


def test_explicit_zero_is_a_count() -> None:
    events = run(reader(), response("", 0, 0))
    assert chunks(events)[-1].usage == Usage(0, None, 0)


def test_a_response_with_counts_and_no_text_is_counted() -> None:
    events = run(reader(), response("a"), response("", 3, 2), response(None, 3, 1))
    assert chunks(events)[-1].usage == Usage(3, None, 4)
    assert texts(events) == ["a"]


def test_no_response_at_all_is_the_workers_failure() -> None:
    with pytest.raises(WorkerFailure, match="without an answer"):
        reader().end()


def test_text_that_is_no_text_is_an_invalid_response() -> None:
    with pytest.raises(WorkerFailure, match="cannot be read"):
        reader().read({"text_output": [5]})


@pytest.mark.parametrize(("mode", "total"), [("sum", 6), ("last", 3)])
def test_usage_modes(mode: str, total: int) -> None:
    counts = CountReader(plan(settings={"usage_mode": mode}), 9)
    for number in (1, 2, 3):
        counts.read(response("a", 3, number))
    assert counts.usage == Usage(3, None, total)


def test_an_unknown_mode_is_last_as_soon_as_the_sum_exceeds_the_limit() -> None:
    counts = CountReader(plan(NAMED_INPUTS, NAMED_OUTPUTS, NAMED), 4)
    totals = []
    for number in (1, 2, 3, 4):
        counts.read({"prompt_tokens": [3], "completion_tokens": [number]})
        assert counts.usage is not None
        totals.append(counts.usage.completion)
    assert totals == [1, 3, 3, 4]


@pytest.mark.parametrize(
    ("reported", "verdict"),
    [([1] * 8, True), ([1, 2, 3, 4], False), ([1, 2], None), ([1], None), ([4, 4], True), ([1, 1], True), ([8], None)],
)
def test_the_probes_verdict(reported: list[int], verdict: bool | None) -> None:
    assert sums_up(reported, 8) is verdict


def test_cumulative_text() -> None:
    found = plan(settings={"text_mode": "cumulative"})
    assert texts(run(reader(found), response("a"), response("ab"), response("abc"))) == ["a", "b", "c"]


def test_a_stop_sequence_across_responses_ends_the_text_and_keeps_the_counts() -> None:
    target = reader(stops=("END",))
    events = [*target.read(response("one E")), *target.read(response("N"))]
    assert not target.enough
    events += target.read(response("D two"))
    assert target.enough
    events += target.end()
    assert texts(events) == ["one "]
    assert chunks(events)[-1].usage == Usage(3, None, 3)
    assert chunks(events)[-2].finished == {0: "stop"}


def test_a_model_that_was_told_the_stop_may_end_by_itself() -> None:
    target = reader(stops=("END",), model_stops=True)
    target.read(response("END"))
    assert not target.enough
    target.read(response("", 3, 1))
    assert target.enough
    assert chunks(target.end())[-1].usage == Usage(3, None, 2)


def test_after_a_stop_it_is_read_on_until_usage_is_known() -> None:
    target = reader(stops=("END",))
    target.read(response("END", None, None))
    assert not target.enough
    target.read(response("more", 3, 1))
    assert target.enough


def test_held_text_that_was_no_stop_is_given_out_at_the_end() -> None:
    assert texts(run(reader(stops=("END",)), response("the EN"))) == ["the ", "EN"]


def test_a_stop_at_the_limit_is_a_stop() -> None:
    events = run(reader(limit=1, stops=("END",)), response("aEND"))
    assert chunks(events)[-2].finished == {0: "stop"}


def test_an_echoed_prompt_is_cut_and_not_charged_as_completion() -> None:
    found = replace(plan(), echoes_prompt=True, counts_prompt=True)
    (chunk,) = chunks(run(reader(found, stream=False), response("the prompt answer", 3, 5)))
    assert orjson.loads(chunk.payload or b"")["choices"][0]["message"]["content"] == " answer"
    assert chunk.usage == Usage(3, None, 2)
    # A stream never begins with it.
    assert texts(run(reader(found), response("the prompt answer", 3, 5))) == ["the prompt answer"]


def test_a_whole_answer_is_bounded() -> None:
    target = reader(stream=False, max_bytes=10)
    target.read(response("x" * 10))
    with pytest.raises(WorkerFailure, match="larger than"):
        target.read(response("x"))
