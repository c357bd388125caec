"""Token counts as a worker reported them: pure values. Anything in the router may import it.

A count that is negative, no integer or over 2^31-1 was not reported at all; zero was.
"""

from dataclasses import dataclass
from typing import Any

from speedinfer.common.v1 import usage_pb2

MAX_COUNT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Usage:
    """Counts of one request, or of a part of it. None: not reported."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None
    # A count was there but cannot be one. Then nothing that was reported before may stand in for it.
    malformed: bool = False

    def message(self) -> usage_pb2.Usage:
        """The wire form."""
        return usage_pb2.Usage(
            prompt_tokens=self.prompt, cached_prompt_tokens=self.cached, completion_tokens=self.completion
        )


# How counts and an answer may speak against one another.
PROMPT_ZERO = "prompt_zero"
COMPLETION_ZERO = "completion_zero"
CACHED_OVER_PROMPT = "cached_over_prompt"


def inconsistencies(counts: Usage, *, content: bool) -> tuple[str, ...]:
    """What in these counts cannot be so, given whether content came. They are charged as they were reported all the same:
    nothing is estimated in their place, and an explicit zero is a count."""
    found: list[str] = []
    if counts.prompt == 0 and (counts.completion or content):
        found.append(PROMPT_ZERO)
    if counts.completion == 0 and content:
        found.append(COMPLETION_ZERO)
    if counts.cached is not None and counts.prompt is not None and counts.cached > counts.prompt:
        found.append(CACHED_OVER_PROMPT)
    return tuple(found)


def count(value: Any) -> int | None:
    """A reported count, or None if `value` cannot be one. Booleans are no counts; 12.0 is not 12."""
    if type(value) is int and 0 <= value <= MAX_COUNT:
        return value
    return None


def from_openai(value: Any) -> Usage | None:
    """Counts of an OpenAI `usage` object (already parsed). None where there is no object or it speaks of no count at all."""
    if not isinstance(value, dict):
        return None
    details = value.get("prompt_tokens_details")
    written = (
        value.get("prompt_tokens"),
        details.get("cached_tokens") if isinstance(details, dict) else None,
        value.get("completion_tokens"),
    )
    prompt, cached, completion = (count(number) for number in written)
    malformed = any(number is not None and count(number) is None for number in written)
    usage = Usage(prompt, cached, completion, malformed)
    return None if usage == Usage() else usage
