"""Token counts that are charged: validation and normal form. Pure; anything in billing may import it.

A count that is negative or over 2^31-1 is missing usage, and missing usage is never charged. Zero is not missing.
"""

from typing import NamedTuple

from speedinfer.common.v1 import usage_pb2
from speedinfer.common.v1.operation_pb2 import OPERATION_EMBEDDING

MAX_COUNT = 2**31 - 1


class Counts(NamedTuple):
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
        return usage_pb2.Usage(**self.fields())

    def fields(self) -> dict[str, int | None]:
        """The same as the values of its fields, for a message that is made with others inside it."""
        return {
            "prompt_tokens": self.prompt,
            "cached_prompt_tokens": self.cached,
            "completion_tokens": self.completion,
        }


def read(usage: usage_pb2.Usage, operation: int) -> Counts | str:
    """The counts of a report, or the name of the field that is missing or impossible.

    More cached tokens than prompt tokens cannot be; they are taken as all of the prompt, which is in the client's favour.
    """
    prompt, cached, completion = usage.prompt_tokens, usage.cached_prompt_tokens, usage.completion_tokens
    if not usage.HasField("prompt_tokens") or not 0 <= prompt <= MAX_COUNT:
        return "usage.prompt_tokens"
    # A count that is absent reads as zero.
    if not 0 <= cached <= MAX_COUNT:
        return "usage.cached_prompt_tokens"
    has_completion = usage.HasField("completion_tokens")
    if not (has_completion or operation == OPERATION_EMBEDDING) or not 0 <= completion <= MAX_COUNT:
        return "usage.completion_tokens"
    return Counts(
        prompt,
        min(cached, prompt) if usage.HasField("cached_prompt_tokens") else None,
        completion if has_completion else None,
    )
