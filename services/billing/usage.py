"""Token counts that are charged: validation and normal form. Pure; anything in billing may import it.

A count that is negative or over 2^31-1 is missing usage, and missing usage is never charged. Zero is not missing.
"""

from dataclasses import dataclass

from speedinfer.common.v1 import usage_pb2
from speedinfer.common.v1.operation_pb2 import OPERATION_EMBEDDING

MAX_COUNT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Counts:
    """What is charged. `cached` None: not reported, nothing was cached; `completion` None: an embedding without any."""

    prompt: int
    cached: int | None
    completion: int | None

    @property
    def total(self) -> int:
        """Tokens as rate limits count them."""
        return self.prompt + (self.completion or 0)

    def message(self) -> usage_pb2.Usage:
        """The wire form."""
        return usage_pb2.Usage(
            prompt_tokens=self.prompt, cached_prompt_tokens=self.cached, completion_tokens=self.completion
        )


def read(usage: usage_pb2.Usage, operation: int) -> Counts | str:
    """The counts of a report, or the name of the field that is missing or impossible.

    More cached tokens than prompt tokens cannot be; they are taken as all of the prompt, which is in the client's favour.
    """
    for name in ("prompt_tokens", "cached_prompt_tokens", "completion_tokens"):
        present = usage.HasField(name)
        if present and not 0 <= getattr(usage, name) <= MAX_COUNT:
            return f"usage.{name}"
        optional = name == "cached_prompt_tokens" or (name == "completion_tokens" and operation == OPERATION_EMBEDDING)
        if not present and not optional:
            return f"usage.{name}"
    return Counts(
        prompt=usage.prompt_tokens,
        cached=min(usage.cached_prompt_tokens, usage.prompt_tokens) if usage.HasField("cached_prompt_tokens") else None,
        completion=usage.completion_tokens if usage.HasField("completion_tokens") else None,
    )
