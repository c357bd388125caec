"""Reads a Triton answer: tensors of each response in, frames for the client and token counts out.

Counts are what the worker reported, prompt tokens once and completion tokens summed or last as the plan says; one that
cannot be a count spoils its total, and a total that never came is absent. A stop sequence ends the client's text; counts
go on as long as responses are read. Why it ended is what the model says where it says so, else what the counts tell.
Pure; imported by the Triton transport.
"""

from typing import Any

from speedinfer.router.v1 import frame_pb2

from services.router.transport.port import Activity, Chunk, Done, Event, WorkerFailure
from services.router.transport.triton_errors import answer_too_large, invalid_response
from services.router.transport.triton_model import TensorPlan
from services.router.transport.triton_openai import OpenAiWriter
from services.router.transport.triton_reasons import LENGTH, STOP, ReasonReader
from services.router.transport.triton_request import Asked
from services.router.transport.triton_tensors import Outputs
from services.router.transport.triton_text import CumulativeText, DeltaText, EchoCutter, EosCutter, StopCutter
from services.router.usage import Usage, count


class CountReader:
    """The counts of one answer."""

    def __init__(self, plan: TensorPlan, limit: int | None, *, minus_prompt: bool = False) -> None:
        self._plan, self._limit, self._minus_prompt = plan, limit, minus_prompt
        self._prompt: int | None = None
        self._sum: int | None = None
        self._last: int | None = None
        self._spoiled = False

    def read(self, outputs: Outputs) -> None:
        """Take in what one response reports."""
        prompt = self._value(outputs, self._plan.prompt_tokens_output)
        if prompt is not None:
            self._prompt = prompt
        completion = self._value(outputs, self._plan.completion_tokens_output)
        if completion is not None:
            self._last = completion
            self._sum = completion + (self._sum or 0)

    @property
    def usage(self) -> Usage | None:
        """Totals up to now; None if nothing was reported, and nothing else may stand in where nonsense was."""
        if self._spoiled:
            return Usage(malformed=True)
        if self._prompt is None and self._sum is None:
            return None
        completion = self._completion()
        if completion is not None and count(completion) is None:
            # Each was a count, but their total, or what is left of it without the prompt, is none.
            return Usage(malformed=True)
        return Usage(prompt=self._prompt, completion=completion)

    @property
    def complete(self) -> Usage | None:
        """The totals if both are there."""
        usage = self.usage
        return usage if usage and usage.prompt is not None and usage.completion is not None else None

    def _completion(self) -> int | None:
        total = self._sum
        if self._plan.usage_sums is False or (
            # Nobody knows which it is, but a model cannot have generated more than it may.
            self._plan.usage_sums is None and total is not None and self._limit is not None and total > self._limit
        ):
            total = self._last
        if total is not None and self._minus_prompt:
            total = total - self._prompt if self._prompt is not None else None
        return total

    def _value(self, outputs: Outputs, name: str) -> int | None:
        values = outputs.get(name)
        if not values:
            return None
        # One request has one count, in whatever shape.
        number = count(values[0]) if len(values) == 1 else None
        self._spoiled = self._spoiled or number is None
        return number


class AnswerReader:
    """One answer, for one request. `read` for each response, then `end` once."""

    def __init__(
        self,
        plan: TensorPlan,
        asked: Asked,
        writer: OpenAiWriter,
        *,
        stream: bool,
        max_bytes: int,
        eos_token: str | None = None,
    ) -> None:
        self._plan, self._asked, self._writer = plan, asked, writer
        self._stream, self._max_bytes, self._eos_token = stream, max_bytes, eos_token or ""
        self._counts = CountReader(plan, asked.limit, minus_prompt=plan.counts_prompt and not asked.pieces)
        self._reasons = ReasonReader(plan, asked.stops)
        self._begin_text()
        # What a stream of the same answer would show.
        self._so_far = CumulativeText()
        self._whole: list[str] = []
        self._bytes = 0
        self._responses = 0
        self._after_stop = 0

    @property
    def enough(self) -> bool:
        """A stop sequence has ended the text and all counts up to it are known, so the worker need not go on. One that was
        told the sequence gets one more response to end by itself."""
        wait = 1 if self._asked.model_stops else 0
        return self._cutter.matched and self._after_stop >= wait and self._counts.complete is not None

    @property
    def said_its_end(self) -> bool:
        """The answer is known to be whole though the worker broke off: its text is over, by the model's own word or by a stop
        sequence, and it was counted. That the limit was reached says nothing of text that was still to come."""
        over = self._cutter.matched or (bool(self._reasons.finish) and not self._reasons.failed)
        return over and self._counts.complete is not None

    def read(self, outputs: Outputs) -> list[Event]:
        """One response's frames."""
        events: list[Event] = []
        opening = self._writer.opening() if self._stream and self._responses == 0 else None
        if opening is not None:
            events.append(Chunk(opening))
        self._responses += 1
        self._after_stop += self._cutter.matched
        before = self._counts.usage
        self._counts.read(outputs)
        self._reasons.read(outputs)
        raw = self._bytes_of(outputs)
        if raw and not self._stream and self._plan.cumulative_text:
            # Nothing was given out yet, so the last text so far is the whole text, however it changed on the way. What a
            # stream would refuse as another text is no answer here either.
            self._so_far.read(raw)
            self._begin_text()
            self._whole.clear()
        text = self._visible(self._text.read(raw))
        usage = self._counts.usage
        if not self._stream:
            self._whole.append(text)
            return [Activity()]
        if text:
            events.append(Chunk(self._writer.text(text), content=True, usage=usage))
        elif usage != before:
            events.append(Chunk(None, usage=usage))
        return events or [Activity()]

    def end(self) -> list[Event]:
        """The last frames: held text, the finish reason, usage, Done. WorkerFailure if nothing at all was answered."""
        if self._responses == 0:
            raise WorkerFailure(frame_pb2.FAILURE_REASON_UPSTREAM, "the worker ended without an answer")
        usage, complete = self._counts.usage, self._counts.complete
        if self._reasons.failed and not self._cutter.matched:
            # Nothing more is shown: another worker may still give the answer, and the reason is not the client's.
            return [Chunk(None, finished={0: self._reasons.finish}, usage=usage), Done()]
        rest = self._visible(self._text.end(), last=True)
        reason = self._finish_reason()
        if not self._stream:
            text = "".join(self._whole) + rest
            payload = self._writer.whole(text, reason, complete)
            return [Chunk(payload, content=bool(text), finished={0: reason}, usage=usage), Done()]
        events: list[Event] = []
        if rest:
            events.append(Chunk(self._writer.text(rest), content=True, usage=usage))
        events.append(Chunk(self._writer.ending(reason), finished={0: reason}, usage=usage))
        if complete is not None:
            events.append(Chunk(None, usage=complete, usage_frame=self._writer.usage(complete)))
        return [*events, Done()]

    def _finish_reason(self) -> str:
        if self._cutter.matched or self._reasons.at_stop:
            return STOP
        if self._reasons.finish:
            return self._reasons.finish
        usage, limit = self._counts.usage, self._asked.limit
        reached = usage is not None and usage.completion is not None and limit is not None and usage.completion >= limit
        return LENGTH if reached else STOP

    def _begin_text(self) -> None:
        """The way that text goes: whole characters, less the prompt's copy, the end-of-text token and all from a stop."""
        echoes = self._plan.echoes_prompt and not self._asked.pieces
        cumulative = self._plan.cumulative_text and self._stream
        self._text: DeltaText | CumulativeText = CumulativeText() if cumulative else DeltaText()
        self._echo = EchoCutter(self._asked.prompt if echoes else "")
        self._eos = EosCutter(self._eos_token)
        self._cutter = StopCutter(self._asked.stops)

    def _visible(self, text: str, *, last: bool = False) -> str:
        kept = self._eos.read(self._echo.read(text))
        if last:
            kept += self._eos.read(self._echo.end()) + self._eos.end()
        visible = self._cutter.read(kept)
        if last and not self._cutter.matched and not self._reasons.at_stop:
            visible += self._cutter.end()
        return visible

    def _bytes_of(self, outputs: Outputs) -> bytes:
        values: list[Any] | None = outputs.get(self._plan.text_output)
        if not values:
            return b""
        text = values[0]
        if not isinstance(text, bytes):
            raise invalid_response(f"output '{self._plan.text_output}' is no text")
        if len(values) > 1:
            # One request has one text; which of several it is, or whether they belong together, nobody says.
            raise invalid_response(f"output '{self._plan.text_output}' has {len(values)} texts")
        self._bytes = len(text) if self._plan.cumulative_text else self._bytes + len(text)
        if not self._stream and self._bytes > self._max_bytes:
            raise answer_too_large(self._max_bytes)
        return text
