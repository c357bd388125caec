"""How a worker's answer ended: the one place that decides it, for every transport. Pure; `dispatch.py` uses it.

Complete is an answer with a finish_reason for each of its choices and with usage (embeddings: usage of the prompt alone),
whether or not the worker said that it was over. Counts are cumulative: of the same choice, or of the whole, the last stands.
"""

import json
import re
from dataclasses import dataclass, replace
from typing import Any

from speedinfer.common.v1.operation_pb2 import OPERATION_EMBEDDING, Operation
from speedinfer.router.v1.frame_pb2 import (
    FAILURE_REASON_UPSTREAM,
    FAILURE_REASON_USAGE_MISSING,
    FailureReason,
)

from services.common import json_members
from services.router import usage
from services.router.safe_text import PLAIN
from services.router.transport.port import Chunk
from services.router.usage import Usage

# A worker that gave up says so in the place of a reason to finish.
# Words of servers vary (`request_cancelled`, `internal_error`); none of those for a good end holds one of these.
_FAILED = re.compile(r"abort|cancel|deadline|error|exception|fail|time[-_ ]?out|timed[-_ ]?out", re.IGNORECASE)
# Characters of such a word that a client is shown: it may hold anything.
MAX_SHOWN_REASON = 60


@dataclass(frozen=True, slots=True)
class Complete:
    """The answer counts."""

    usage: Usage
    # A stream's usage frame (`choices` empty, the usage object whole); empty for a whole answer.
    usage_frame: bytes


@dataclass(frozen=True, slots=True)
class Incomplete:
    """The answer does not count."""

    reason: FailureReason.ValueType
    message: str


class Answer:
    """What has come of one answer so far."""

    def __init__(self, operation: Operation.ValueType, stream: bool, choices: int) -> None:
        self._embedding = operation == OPERATION_EMBEDDING
        self._stream = stream
        self._choices = max(choices, 1)
        self._finished: dict[int, str] = {}
        # Counts of the whole request, and of single choices.
        self._total: Usage | None = None
        self._by_choice: dict[int, Usage] = {}
        # A choice's counts came after the last of the whole.
        self._choices_are_later = False
        # Counts of the whole came with or after the last finish_reason: nothing will change them any more.
        self._closed = False
        # Choices whose counts came with or after their own finish_reason.
        self._closed_choices: set[int | None] = set()
        self._last_frame: bytes | None = None
        self._usage_frame: bytes | None = None

    def take(self, chunk: Chunk) -> None:
        """Look at the next chunk."""
        if chunk.finished:
            for choice, reason in chunk.finished.items():
                # A choice that was given up stays so, whatever is said of it later.
                if not _gave_up(self._finished.get(choice, "")):
                    self._finished[choice] = reason
        if chunk.payload is not None:
            self._last_frame = chunk.payload
        if chunk.usage is None:
            return
        if chunk.usage_frame is not None:
            self._usage_frame = chunk.usage_frame
        if self._ended_well and (chunk.usage_choice is None or self._choices == 1):
            self._closed = True
        if chunk.usage_choice in self._finished:
            self._closed_choices.add(chunk.usage_choice)
            self._closed |= self._closed_choices.issuperset(range(self._choices))
        # With one choice, its counts are the whole's.
        self._choices_are_later = chunk.usage_choice is not None and self._choices > 1
        if chunk.usage_choice is None or self._choices == 1:
            self._total = _later(self._total, chunk.usage)
        else:
            earlier = self._by_choice.get(chunk.usage_choice)
            self._by_choice[chunk.usage_choice] = _later(earlier, chunk.usage)

    @property
    def usage(self) -> Usage:
        """What the worker has counted up to now. Cached tokens are a part of the prompt's."""
        counts = self._counts()
        if counts.cached is not None and counts.prompt is not None and counts.cached > counts.prompt:
            return replace(counts, cached=counts.prompt)
        return counts

    def inconsistencies(self, *, content: bool) -> tuple[str, ...]:
        """What the worker's counts cannot be, as it reported them; `content`: some came."""
        return usage.inconsistencies(self._counts(), content=content)

    def _counts(self) -> Usage:
        if self._total is None:
            return self._sum()
        if not self._choices_are_later:
            return self._total
        counts = self._sum()
        if counts.malformed:
            return counts
        # Of some choices alone it is the least that the whole came to; and so is what the whole was before.
        if not self._all_counted and (counts.completion or 0) <= (self._total.completion or 0):
            return self._total
        return _later(self._total, counts)

    @property
    def _all_counted(self) -> bool:
        """Every choice has a count of its own."""
        counts = self._by_choice.values()
        return len(counts) == self._choices and all(each.completion is not None for each in counts)

    def _sum(self) -> Usage:
        """Counts of single choices, put together."""
        if any(each.malformed for each in self._by_choice.values()):
            return Usage(malformed=True)
        counts = self._by_choice.values()
        completions = [each.completion for each in counts if each.completion is not None]
        prompts = [each.prompt for each in counts if each.prompt is not None]
        cached = [each.cached for each in counts if each.cached is not None]
        if sum(completions) > usage.MAX_COUNT:
            return Usage(malformed=True)
        return Usage(
            prompt=prompts[-1] if prompts else None,
            cached=cached[-1] if cached else None,
            completion=sum(completions) if completions else None,
        )

    @property
    def usage_so_far(self) -> Usage | None:
        """What could be charged if the client left now: prompt tokens and at least one count of completion tokens."""
        counts = self.usage
        return counts if counts.prompt is not None and counts.completion is not None else None

    @property
    def is_complete(self) -> bool:
        """Nothing more is needed, and nothing that may still come would change the counts."""
        return self._closed and self._ended_well and self._has_usage

    @property
    def may_stand(self) -> bool:
        """It counts if nothing more comes."""
        return self._ended_well and self._has_usage

    def finish(self) -> Complete | Incomplete:
        """The verdict, once nothing more will come."""
        failed = next(filter(_gave_up, self._finished.values()), None)
        if failed is not None:
            shown = PLAIN(failed, MAX_SHOWN_REASON)
            return Incomplete(FAILURE_REASON_UPSTREAM, f"the worker gave up (finish_reason {shown!r})")
        if not self._ended_well:
            return Incomplete(FAILURE_REASON_UPSTREAM, "the worker's answer ended before it was finished")
        if not self._has_usage:
            return Incomplete(FAILURE_REASON_USAGE_MISSING, "the worker reported no usage")
        return Complete(self.usage, self._frame() if self._stream else b"")

    @property
    def _ended_well(self) -> bool:
        if self._embedding:
            return self._last_frame is not None
        # A lone choice may have any index.
        all_finished = (
            bool(self._finished) if self._choices == 1 else self._finished.keys() >= set(range(self._choices))
        )
        return all_finished and not any(map(_gave_up, self._finished.values()))

    @property
    def _has_usage(self) -> bool:
        if self._total is None and not self._embedding and not self._all_counted:
            return False
        counts = self.usage
        return counts.prompt is not None and (self._embedding or counts.completion is not None)

    def _frame(self) -> bytes:
        """The usage frame: the worker's own where it says what is charged, else made from the last that it sent."""
        frame = self._usage_frame or self._last_frame or b"{}"
        changes: dict[str, bytes | None] = {}
        parsed = json_members.parse(frame)
        if usage.from_openai(parsed.get("usage")) != self.usage:
            changes["usage"] = _object(self.usage)
        if parsed.get("choices") != []:
            changes["choices"] = b"[]"
        return json_members.replace(frame, changes) if changes else frame


def _gave_up(reason: str) -> bool:
    return _FAILED.search(reason) is not None


def _later(earlier: Usage | None, later: Usage) -> Usage:
    """Cumulative counts after a later report, which may leave some out."""
    if later.malformed:
        return Usage(malformed=True)
    if earlier is None:
        return later
    return Usage(
        prompt=earlier.prompt if later.prompt is None else later.prompt,
        cached=earlier.cached if later.cached is None else later.cached,
        completion=earlier.completion if later.completion is None else later.completion,
    )


def _object(counts: Usage) -> bytes:
    prompt, completion = counts.prompt or 0, counts.completion or 0
    value: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if counts.cached is not None:
        value["prompt_tokens_details"] = {"cached_tokens": counts.cached}
    return json.dumps(value, separators=(",", ":")).encode()
