"""What tokens cost: exact integers, rounded up once. Pure; anything in billing may import it.

Amounts are nano-USD; prices are nano-USD per million tokens. A charge is the exact sum of its three products, divided by a
million and rounded up to a whole nano-USD at the very end. Products are computed here, never in SQL.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.billing.usage import Counts

PER_TOKENS = 1_000_000
# 100,000 USD per million tokens. With counts of at most 2^31-1 no charge exceeds 2^59 nano-USD, far inside an int64.
MAX_PRICE_NANOS = 100_000 * 1_000_000_000
MAX_TIERS = 16


@dataclass(frozen=True, slots=True)
class Tier:
    """Prices for prompts of at least `from_prompt_tokens`, in nano-USD per million tokens."""

    from_prompt_tokens: int
    prompt_nanos: int
    cached_nanos: int
    completion_nanos: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """What turns a request into the most that it can cost; see ModelBounds for each."""

    max_output_tokens: int = 4096
    default_output_tokens: int = 1024
    tokens_per_byte: int = 1
    template_request_tokens: int = 32
    template_message_tokens: int = 8
    tools_request_tokens: int = 512
    tools_message_tokens: int = 16
    # None: images are refused.
    image_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class PriceVersion:
    """A model's price and bounds from a moment on. Never changed once stored."""

    version: str
    model: str
    # Empty: for all accounts.
    account_id: str
    effective_from_ms: int
    created_at_ms: int
    tiers: tuple[Tier, ...]
    bounds: Bounds


def tier_for(tiers: Sequence[Tier], prompt_tokens: int) -> Tier:
    """The tier of a prompt of that length: the last whose start it reaches."""
    chosen = tiers[0]
    for tier in tiers[1:]:
        if prompt_tokens < tier.from_prompt_tokens:
            break
        chosen = tier
    return chosen


def charge_nanos(tiers: Sequence[Tier], usage: Counts) -> int:
    """What that usage costs."""
    tier = tier_for(tiers, usage.prompt)
    cached = usage.cached or 0
    exact = (
        (usage.prompt - cached) * tier.prompt_nanos
        + cached * tier.cached_nanos
        + (usage.completion or 0) * tier.completion_nanos
    )
    return round_up(exact)


def round_up(exact: int) -> int:
    """The only rounding: millionths of a nano-USD, upwards."""
    return -(-exact // PER_TOKENS)


def check_tiers(tiers: Sequence[Tier]) -> tuple[str, str] | None:
    """The field at fault and why, or None where the tiers can be stored."""
    if not 1 <= len(tiers) <= MAX_TIERS:
        return "tiers", f"1 to {MAX_TIERS} tiers are expected"
    before = -1
    for index, tier in enumerate(tiers):
        place = f"tiers[{index}]"
        if index == 0 and tier.from_prompt_tokens != 0:
            return f"{place}.from_prompt_tokens", "the first tier starts at 0"
        if tier.from_prompt_tokens <= before:
            return f"{place}.from_prompt_tokens", "tiers must ascend"
        before = tier.from_prompt_tokens
        for name, nanos in (
            ("prompt", tier.prompt_nanos),
            ("cached_prompt", tier.cached_nanos),
            ("completion", tier.completion_nanos),
        ):
            if not 0 <= nanos <= MAX_PRICE_NANOS:
                return f"{place}.{name}", "a price is from 0 to 100000 USD per million tokens"
        if tier.cached_nanos > tier.prompt_nanos:
            return f"{place}.cached_prompt", "cached tokens may not cost more than others"
    return None
