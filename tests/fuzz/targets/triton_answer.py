"""Promise: of a Triton model's responses a client reads the whole text up to the first stop sequence, streamed or not; what is
charged is what the model counted, summed or last as it counts; and a count that is none leaves nothing to charge.
"""

import json
from typing import Any

from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION, OPERATION_COMPLETION

from services.router.transport.port import Chunk, Done, Event
from services.router.transport.triton_answer import AnswerReader
from services.router.transport.triton_openai import OpenAiWriter
from services.router.transport.triton_request import Asked
from services.router.usage import Usage
from tests.fuzz.choices import Choices
from tests.fuzz.oracles import counts
from tests.fuzz.targets.triton_text import first_complete_stop
from tests.unit.router.triton_models import plan

INSTRUMENTED = ("services.router.transport.triton_answer", "services.router.transport.triton_openai")
PLANS = {"sum": plan(), "last": plan(settings={"usage_mode": "last"})}
MAX_RESPONSES = 12
MAX_BYTES = 100_000
_LETTERS = ("a", "b", "c", "é", "\n", '"')
_COUNTS = (1, 2, 0, 5, 40, None, None, -1, 2**31, 2**31 - 1, b"5", 1.5, True)


def check(data: bytes) -> None:
    """How it is asked for, then each response."""
    choices = Choices(data)
    mode = choices.pick(("sum", "last"))
    stream, chat = choices.flag(), choices.flag()
    limit = choices.pick((9, 1, None, 40))
    stops = tuple(text for text in (choices.text(_LETTERS, 3) for _ in range(choices.below(3))) if text)
    asked = Asked((), "prompt", stream, limit, stops, choices.flag(), ())
    writer = OpenAiWriter(OPERATION_CHAT_COMPLETION if chat else OPERATION_COMPLETION, "acme/m", "r", 5)
    reader = AnswerReader(PLANS[mode], asked, writer, stream=stream, max_bytes=MAX_BYTES)
    text, reported, events = "", _Reported(), []
    for _ in range(choices.below(MAX_RESPONSES) + 1):
        piece = choices.text(_LETTERS, 6)
        text += piece
        events += reader.read({"text_output": [piece.encode()], **reported.make(choices)})
    events += reader.end()
    visible = first_complete_stop(text, list(stops))
    usage = reported.total(mode)
    stopped = any(stop in text for stop in stops)
    reached = usage is not None and limit is not None and usage[1] is not None and usage[1] >= limit
    _check(events, stream, chat, visible, usage, "length" if reached and not stopped else "stop")


class _Reported:
    """What the model counted."""

    def __init__(self) -> None:
        self._prompts: list[Any] = []
        self._completions: list[Any] = []

    def make(self, choices: Choices) -> dict[str, list[Any]]:
        """The counts of one response, some absent, empty or doubled."""
        outputs: dict[str, list[Any]] = {}
        for name, noted in (("num_input_tokens", self._prompts), ("num_output_tokens", self._completions)):
            value = choices.pick(_COUNTS)
            if value is not None:
                shape = choices.below(16)
                outputs[name] = {14: [], 15: [value, value]}.get(shape, [value])
                if shape != 14:
                    noted.append("two" if shape == 15 else value)
        return outputs

    def total(self, mode: str) -> tuple[int | None, int | None] | None:
        """Prompt and completion tokens; None if one of them was nonsense."""
        said = [*self._prompts, *self._completions]
        if any(type(value) is not int or not 0 <= value <= counts.LARGEST for value in said):
            return None
        completion = sum(self._completions) if mode == "sum" else (self._completions or [0])[-1]
        if completion > counts.LARGEST:
            return None
        return (self._prompts or [None])[-1], completion if self._completions else None


def _check(
    events: list[Event],
    stream: bool,
    chat: bool,
    visible: str,
    usage: tuple[int | None, int | None] | None,
    reason: str,
) -> None:
    assert events[-1] == Done()
    chunks = [event for event in events if isinstance(event, Chunk)]
    frames = [json.loads(chunk.payload) for chunk in chunks if chunk.payload is not None]
    assert all(b"\n" not in chunk.payload for chunk in chunks if chunk.payload is not None)
    choices = [choice for frame in frames for choice in frame["choices"]]
    part = ("delta" if stream else "message") if chat else ""
    texts = [(choice[part].get("content") or "") if part else choice["text"] for choice in choices]
    assert "".join(texts) == visible, (texts, visible)
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == [reason]
    complete = usage is not None and None not in usage
    reported = [chunk.usage for chunk in chunks if chunk.usage is not None]
    if complete:
        assert usage is not None
        assert reported[-1] == Usage(usage[0], None, usage[1])
    else:
        assert not reported or reported[-1].malformed or None in (reported[-1].prompt, reported[-1].completion)
    shown = [json.loads(chunk.usage_frame)["usage"] for chunk in chunks if chunk.usage_frame is not None]
    shown += [frame["usage"] for frame in frames if "usage" in frame]
    assert [(each["prompt_tokens"], each["completion_tokens"]) for each in shown] == ([usage] if complete else [])
