"""Promise: an answer counts exactly if each choice has a reason to finish that is none of giving up, and usage was reported;
what is charged is the last cumulative word; and nothing counts after an error.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION
from speedinfer.router.v1.frame_pb2 import FAILURE_REASON_UPSTREAM, FAILURE_REASON_USAGE_MISSING

from services.router.answer import Answer, Complete, Incomplete
from services.router.transport.openai_frames import FrameReader
from services.router.transport.port import WorkerFailure
from tests.fuzz.choices import Choices
from tests.fuzz.oracles import counts

INSTRUMENTED = ("services.router.answer", "services.router.usage", "services.router.transport.openai_frames")
MODEL = "m"
GAVE_UP = ("abort", "cancelled", "timeout", "error", "ABORT")
MAX_FRAMES = 24


@dataclass
class Ledger:
    """What was said, in the order in which it was: judged only at the end."""

    choices: int
    reasons: dict[int, list[str]] = field(default_factory=dict)
    # (choice or None for the whole, what it says).
    reports: list[tuple[int | None, counts.Counts]] = field(default_factory=list)

    def finished(self) -> bool:
        """Every choice ended, and none gave up."""
        said = [reason for each in self.reasons.values() for reason in each]
        return len(self.reasons) >= self.choices and not any(reason in GAVE_UP for reason in said)

    def gave_up(self) -> bool:
        """Some choice did."""
        return any(reason in GAVE_UP for each in self.reasons.values() for reason in each)

    def usage(self) -> tuple[set[int], int | None, int] | None:
        """The prompts' counts that may be charged, the cached count and the completion's; None where something is missing."""
        found = self._last_word()
        return found if found is not None and found[0] else None

    def _last_word(self) -> tuple[set[int], int | None, int] | None:
        whole = self._put_together([None])
        single = self._put_together(list(range(self.choices)))
        if all(scope is not None for scope, _ in self.reports):
            return single if self._all_counted() and not self._is_over() else None
        if self.reports[-1][0] is None or self.choices == 1:
            return whole
        # A choice's count came last: all of them together, or else what shows more.
        if any(report[3] for report in self._last_reports()) or self._is_over():
            return None
        if not self._all_counted() and (single is None or single[2] <= (whole[2] if whole else 0)):
            return whole
        known, counted = self._last(None), single or (set(), None, 0)
        prompts = counted[0] or ({known[0]} if known[0] is not None else set())
        return prompts, known[1] if counted[1] is None else counted[1], counted[2]

    def _all_counted(self) -> bool:
        return all(self._last(scope)[2] is not None for scope in range(self.choices))

    def _is_over(self) -> bool:
        """More together than a count can be."""
        return sum(self._last(scope)[2] or 0 for scope in range(self.choices)) > 2**31 - 1

    def _last_reports(self) -> list[counts.Counts]:
        """The last report of each choice that has any."""
        return list({scope: report for scope, report in self.reports if scope is not None}.values())

    def _put_together(self, scopes: list[int | None]) -> tuple[set[int], int | None, int] | None:
        each = [self._last(scope) for scope in scopes]
        completions = [completion for _, _, completion in each if completion is not None]
        prompts = {prompt for prompt, _, _ in each if prompt is not None}
        cached = [count for _, count, _ in each if count is not None]
        if not completions:
            return None
        return prompts, cached[-1] if cached else None, sum(completions)

    def _last(self, scope: int | None) -> tuple[int | None, int | None, int | None]:
        """The last words on one scope; nothing that came before nonsense may stand in for it."""
        of_scope = [report for whose, report in self.reports if whose == scope]
        nonsense = [number for number, report in enumerate(of_scope) if report[3]]
        valid = of_scope[nonsense[-1] + 1 :] if nonsense else of_scope
        last: list[int | None] = [None, None, None]
        for report in valid:
            last = [old if new is None else new for old, new in zip(last, report[:3], strict=True)]
        return last[0], last[1], last[2]


def check(data: bytes) -> None:
    """The first byte is the number of choices, each frame a few more."""
    choices = Choices(data)
    ledger = Ledger(choices.below(3) + 1)
    answer = Answer(OPERATION_CHAT_COMPLETION, True, ledger.choices)
    reader = FrameReader(MODEL, OPERATION_CHAT_COMPLETION)
    sent = 0
    while choices.more and sent < MAX_FRAMES:
        frame, is_error = _frame(choices, ledger)
        try:
            answer.take(reader.read(json.dumps(frame).encode()))
        except WorkerFailure:
            assert is_error, "a good frame was taken for a failure"
            return
        assert not is_error, "an error frame was taken for a good one"
        sent += 1
        if answer.is_complete:
            assert isinstance(answer.finish(), Complete), "done before it was complete"
    _judge(answer, ledger)


def _frame(choices: Choices, ledger: Ledger) -> tuple[dict[str, Any], bool]:
    """A frame, noted; and whether it is an error."""
    kind = choices.below(6)
    if kind == 5:
        return {"error": choices.pick(("failed", {"message": "failed", "code": 500}))}, True
    index = choices.below(ledger.choices)
    frame: dict[str, Any] = {"id": "i", "model": MODEL}
    if kind == 4:
        frame |= choices.pick(({"choices": []}, {"choices": None}, {}))
        whose: int | None = None
    else:
        whose = index
        choice: dict[str, Any] = {"delta": choices.pick(({"content": "x"}, {}))}
        # The first choice need not be named.
        if index or choices.flag():
            choice["index"] = index
        if kind == 3:
            choice["finish_reason"] = choices.pick(("stop", "length", "tool_calls", "stop", None, "", *GAVE_UP))
            if choice["finish_reason"]:
                ledger.reasons.setdefault(index, []).append(choice["finish_reason"])
        frame["choices"] = [choice]
    if kind == 4 or choices.flag():
        frame["usage"] = counts.made(choices)
        if (report := counts.read(frame["usage"])) is not None:
            # With one choice, its counts are the whole's.
            ledger.reports.append((None if ledger.choices == 1 else whose, report))
    return frame, False


def _judge(answer: Answer, ledger: Ledger) -> None:
    verdict = answer.finish()
    usage = ledger.usage()
    if not ledger.finished():
        assert isinstance(verdict, Incomplete), "an answer that did not end well counts"
        assert verdict.reason == FAILURE_REASON_UPSTREAM
        return
    if usage is None:
        assert isinstance(verdict, Incomplete), "an answer without usage counts"
        assert verdict.reason == FAILURE_REASON_USAGE_MISSING
        return
    assert isinstance(verdict, Complete), verdict
    prompts, _, completion = usage
    charged = verdict.usage
    assert charged.prompt in prompts
    assert charged.completion == completion
    assert charged.cached is None or charged.cached <= charged.prompt
    frame = json.loads(verdict.usage_frame)
    assert frame["choices"] == []
    assert counts.read(frame["usage"]) is not None
    shown = frame["usage"]
    assert (shown["prompt_tokens"], shown["completion_tokens"]) == (charged.prompt, charged.completion)
