"""What a set of answers should have cost, computed apart from the product: from the usage that clients saw.

The arithmetic is written again on purpose; a test that used billing's own could not find it wrong.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from services.common.money import parse_usd


def charge_nanos(usage: Mapping[str, Any], prompt: str, completion: str, cached_prompt: str | None = None) -> int:
    """Nano-USD of one usage object at prices in USD per million tokens, rounded up once."""
    cached = min((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0, usage["prompt_tokens"])
    millionths: int = (
        (usage["prompt_tokens"] - cached) * parse_usd(prompt)
        + cached * parse_usd(cached_prompt if cached_prompt is not None else prompt)
        + usage["completion_tokens"] * parse_usd(completion)
    )
    return -(-millionths // 1_000_000)


def total_nanos(usages: Iterable[Mapping[str, Any]], prompt: str, completion: str) -> int:
    """The sum over many."""
    return sum(charge_nanos(usage, prompt, completion) for usage in usages)
