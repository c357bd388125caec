"""What tokens cost and what a request can come to, by the contract and by fractions. Imports nothing of the product."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from speedinfer.billing.v1 import reservation_pb2 as pb
from speedinfer.common.v1 import operation_pb2, usage_pb2

MILLION = 1_000_000
MOST = 2**31 - 1
EMBEDDING = operation_pb2.OPERATION_EMBEDDING

# From how many prompt tokens on; nano-USD per million tokens of the prompt, of its cached part, of the completion.
Tier = tuple[int, int, int, int]
# Prompt, cached and completion tokens as they are charged.
Counts = tuple[int, int | None, int | None]


def tier_of(tiers: Sequence[Tier], prompt: int) -> Tier:
    """The tier that the reported prompt tokens choose."""
    return max(tier for tier in tiers if tier[0] <= prompt)


def cost(tiers: Sequence[Tier], counts: Counts) -> Fraction:
    """Exact, in nano-USD."""
    prompt, cached, completion = counts
    _, fresh, again, made = tier_of(tiers, prompt)
    tokens = ((prompt - (cached or 0), fresh), (cached or 0, again), (completion or 0, made))
    return sum((Fraction(count * price, MILLION) for count, price in tokens), Fraction(0))


def charge(tiers: Sequence[Tier], counts: Counts) -> int:
    """Rounded up, once."""
    return math.ceil(cost(tiers, counts))


def reported(usage: usage_pb2.Usage, operation: int) -> Counts | str:
    """What can be charged of a report, or the field that is missing or impossible."""
    for name in ("prompt_tokens", "cached_prompt_tokens", "completion_tokens"):
        there = usage.HasField(name)
        needed = name == "prompt_tokens" or (name == "completion_tokens" and operation != EMBEDDING)
        if (needed and not there) or (there and not 0 <= getattr(usage, name) <= MOST):
            return f"usage.{name}"
    cached = min(usage.cached_prompt_tokens, usage.prompt_tokens) if usage.HasField("cached_prompt_tokens") else None
    return usage.prompt_tokens, cached, usage.completion_tokens if usage.HasField("completion_tokens") else None


@dataclass(frozen=True)
class Most:
    """What a request can come to."""

    hold: int
    output_limit: int | None
    # Against tokens per minute: bytes/4 and the output bound.
    counted: int


def most(item: pb.ReserveItem, tiers: Sequence[Tier], bounds: Mapping[str, int | None]) -> Most | None:
    """The hold, at the dearest tier that the prompt can reach; None where images have no figure."""
    size = item.prompt
    known = item.counted_prompt_tokens if item.HasField("counted_prompt_tokens") else None
    if known is None and size.images and bounds["image_tokens"] is None:
        return None
    pair = "tools" if size.has_tools else "template"
    prompt = (
        (size.text_bytes + 8 * size.inputs) * (bounds["tokens_per_byte"] or 0)
        + size.token_ids
        + size.images * (bounds["image_tokens"] or 0)
        + (bounds[f"{pair}_request_tokens"] or 0)
        + size.messages * (bounds[f"{pair}_message_tokens"] or 0)
        if known is None
        else known
    )
    limit = None
    if item.operation != EMBEDDING:
        asked = item.output_limit if item.HasField("output_limit") else bounds["default_output_tokens"]
        limit = min(asked or 0, bounds["max_output_tokens"] or 0)
    completion = (limit or 0) * max(item.sequences, 1)
    dearest = max(cost([(0, *tier[1:])], (prompt, 0, completion)) for tier in tiers if tier[0] <= prompt)
    said = math.ceil(Fraction(size.text_bytes, 4)) + size.token_ids if known is None else known
    return Most(math.ceil(dearest), limit, said + completion)
