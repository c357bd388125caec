"""Workers whose every event is numbered, and who remember what they sent: the other half of a client's record.

A call's number stands in its prompt (`call 17`); its text is `w1/17:0 w1/17:1 ...`, so that what is lost, doubled, reordered or
another call's is seen in the text alone. What a worker does with a call is told by `part`, a function of the two.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tests.chaos.history import Attempt, Counts
from tests.fakes import scripts
from tests.fakes.scripts import Close, Hang, Pause, Received, Reset, Step, WaitFor
from tests.fakes.worker import FakeWorker

MODEL = "acme/model-1"


class Act(Enum):
    """What a worker does at the event `at` (of a whole answer: instead of it)."""

    WELL = "answers well"
    HANG = "hangs"
    RESET = "resets the connection"
    CLOSE = "closes the connection"
    GARBAGE = "sends an event that is no JSON"
    ERROR_FRAME = "sends an error frame"
    BUSY = "answers 429 with retry-after"
    UNAVAILABLE = "answers 503"
    BROKEN = "answers 500"
    NO_USAGE = "ends without usage"
    NOT_HTTP = "answers bytes that are no HTTP"


@dataclass(frozen=True)
class Part:
    """What one worker does with one call."""

    act: Act = Act.WELL
    events: int = 8
    at: int = 0
    # Between two events.
    gap_s: float = 0.0
    # Blanks in each event, so that buffers fill.
    pad_bytes: int = 0
    # Usage with each event, where it is asked for.
    counts_each: bool = True
    # After the answer, close the connection that was kept; whoever uses it again just then finds it gone.
    closes_after_s: float | None = None
    # Before the event of that index the worker waits for this.
    gate: asyncio.Event | None = None
    gate_at: int = 0


def prompt_tokens(call: int) -> int:
    """What a worker says that a call's prompt has."""
    return 5 + call % 7


def prompt(call: int) -> str:
    """The prompt of a call."""
    return f"call {call}"


class NumberedWorker(FakeWorker):
    """A fake worker that plays parts and remembers its attempts."""

    def __init__(self, name: str, part: Callable[[str, int], Part]) -> None:
        super().__init__([MODEL])
        self.name = name
        self.attempts: list[Attempt] = []
        # The last request of each call.
        self.taken: dict[int, Received] = {}
        self._part = part
        self.scripts[MODEL] = self._play

    def registration(self, model: str = MODEL, **config: Any) -> dict[str, Any]:
        """What is registered."""
        if model != MODEL:
            config["model_map"] = {model: MODEL}
        return {
            "worker_id": self.name,
            "worker_type": "test",
            "runtime": "openai-compatible",
            "runtime_endpoint": self.url,
            "supported_models": [model],
            "runtime_config": {"transport": "openai", "check": "metadata", **config},
        }

    def attempts_of(self, call: int) -> list[Attempt]:
        """The dispatches of one call."""
        return [attempt for attempt in self.attempts if attempt.call == call]

    def _play(self, request: Received) -> Iterator[Step]:
        body = request.json
        call = int(body["messages"][0]["content"].removeprefix("call "))
        attempt = Attempt(call, request.headers.get("x-request-id", ""), self.name)
        self.attempts.append(attempt)
        self.taken[call] = request
        part = self._part(self.name, call)
        if part.act in _AT_ONCE:
            yield from _AT_ONCE[part.act]
        elif body.get("stream"):
            yield from self._stream(attempt, part, body.get("stream_options") or {})
        else:
            yield from self._whole(attempt, part)
        if part.closes_after_s is not None:
            yield Pause(part.closes_after_s)
            yield Close()

    def _stream(self, attempt: Attempt, part: Part, options: dict[str, Any]) -> Iterator[Step]:
        continuous = part.counts_each and bool(options.get("continuous_usage_stats"))
        yield scripts.SSE_HEAD
        yield scripts.event(scripts.delta(MODEL, role="assistant", content=""))
        for index in range(part.events):
            if part.gate is not None and index == part.gate_at:
                yield WaitFor(part.gate)
            if part.act in _LATER and index == part.at:
                yield from _LATER[part.act]
            if part.gap_s and index:
                yield Pause(part.gap_s)
            piece = f"{self.name}/{attempt.call}:{index} "
            members: dict[str, Any] = {"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]}
            if part.pad_bytes:
                members["pad"] = " " * part.pad_bytes
            if continuous:
                members["usage"] = self._report(attempt, index + 1)
            attempt.sent.append(piece)
            yield scripts.event(scripts.frame(MODEL, **members))
        if part.gate is not None and part.gate_at == part.events:
            yield WaitFor(part.gate)
        yield scripts.event(scripts.delta(MODEL, finish_reason="stop"))
        if part.gate is not None and part.gate_at == part.events + 1:
            yield WaitFor(part.gate)
        if part.act is not Act.NO_USAGE:
            usage = self._report(attempt, part.events)
            yield scripts.event(scripts.frame(MODEL, choices=[], usage=usage))
        yield scripts.event(scripts.DONE)
        yield scripts.LAST_CHUNK

    def _whole(self, attempt: Attempt, part: Part) -> Iterator[Step]:
        if part.gate is not None:
            yield WaitFor(part.gate)
        if part.gap_s:
            yield Pause(part.gap_s * part.events)
        if part.act in _LATER:
            yield from _LATER[part.act]
        attempt.sent += [f"{self.name}/{attempt.call}:{index} " for index in range(part.events)]
        usage = None if part.act is Act.NO_USAGE else self._report(attempt, part.events)
        yield scripts.json_answer(scripts.chat_whole(MODEL, "".join(attempt.sent), usage))

    def _report(self, attempt: Attempt, completion: int) -> dict[str, Any]:
        counts = Counts(prompt_tokens(attempt.call), completion)
        attempt.reported.append(counts)
        return scripts.usage(counts.prompt, counts.completion)


_AT_ONCE: dict[Act, list[Step]] = {
    Act.BUSY: [scripts.json_answer({"error": {"message": "queue is full"}}, 429, retry_after="1")],
    Act.UNAVAILABLE: [scripts.json_answer({"error": {"message": "not now"}}, 503)],
    Act.BROKEN: [scripts.json_answer({"error": {"message": "it broke"}}, 500)],
    Act.NOT_HTTP: [b"\x16\x03\x01 this is no HTTP\r\n\r\n", Close()],
}
# A whole answer has no events: there, too, these end it.
_LATER: dict[Act, list[Step]] = {
    Act.HANG: [Hang()],
    Act.RESET: [Reset()],
    Act.CLOSE: [Close()],
    Act.GARBAGE: [scripts.event("{" + json.dumps("nonsense")), Close()],
    Act.ERROR_FRAME: [scripts.event({"error": {"message": "out of memory", "code": 500}}), Close()],
}
