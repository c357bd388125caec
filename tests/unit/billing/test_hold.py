"""The bound: figures by hand, and that no charge within it exceeds it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from speedinfer.billing.v1 import reservation_pb2 as pb
from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION, OPERATION_EMBEDDING

from services.billing import hold
from services.billing.price import Bounds, PriceVersion, Tier, charge_nanos
from services.billing.usage import Counts

FLAT = (Tier(0, 1_000_000, 500_000, 2_000_000),)


def price(tiers: tuple[Tier, ...] = FLAT, bounds: Bounds | None = None) -> PriceVersion:
    return PriceVersion("v", "m", "", 0, 0, tiers, bounds or Bounds())


def item(prompt: dict[str, Any] | None = None, **fields: Any) -> pb.ReserveItem:
    values = {"operation": OPERATION_CHAT_COMPLETION, "prompt": pb.PromptSize(**(prompt or {})), **fields}
    return pb.ReserveItem(**values)


def prompt_tokens(one: pb.ReserveItem, bounds: Bounds | None = None) -> int | None:
    return hold.prompt_bound(one, bounds or Bounds())


def test_the_prompt_bound_is_bytes_and_the_template_s_allowance() -> None:
    assert prompt_tokens(item({"text_bytes": 100, "messages": 3})) == 100 + 32 + 3 * 8
    assert prompt_tokens(item({"text_bytes": 100, "messages": 3, "has_tools": True})) == 100 + 512 + 3 * 16
    assert prompt_tokens(item({"text_bytes": 100}), Bounds(tokens_per_byte=3)) == 300 + 32
    assert prompt_tokens(item({"inputs": 5, "token_ids": 7})) == 5 * 8 + 7 + 32
    assert prompt_tokens(item({"images": 2}), Bounds(image_tokens=1_000)) == 2_000 + 32
    assert prompt_tokens(item({"images": 2})) is None
    assert prompt_tokens(item({"text_bytes": 100, "images": 1}, counted_prompt_tokens=9)) == 9


def test_the_output_bound_is_the_client_s_capped_or_the_default() -> None:
    bounds = Bounds(max_output_tokens=50, default_output_tokens=20)
    assert hold.output_bound(item(), bounds) == 20
    assert hold.output_bound(item(output_limit=49), bounds) == 49
    assert hold.output_bound(item(output_limit=51), bounds) == 50
    assert hold.output_bound(item(operation=OPERATION_EMBEDDING, output_limit=51), bounds) is None


def test_the_hold_covers_every_sequence_and_is_rounded_up() -> None:
    bound = hold.bound(item({"text_bytes": 10}, output_limit=5, sequences=3), price())
    assert bound is not None
    assert (bound.hold_nanos, bound.output_limit, bound.limit_tokens) == (10 + 32 + 2 * 15, 5, 3 + 15)
    odd = hold.bound(item(counted_prompt_tokens=1, output_limit=1), price((Tier(0, 1, 1, 0),)))
    assert odd is not None
    assert odd.hold_nanos == 1


tier_prices = st.integers(0, 10**12)
tiers = st.lists(st.tuples(st.integers(1, 5_000), tier_prices, tier_prices, tier_prices), max_size=4).map(
    lambda rows: tuple(
        Tier(start, max(one, two), min(one, two), three)
        for start, one, two, three in sorted({row[0]: row for row in [(0, 7, 3, 9), *rows]}.values())
    )
)


@given(tiers, st.integers(0, 6_000), st.integers(1, 300), st.integers(0, 8), st.data())
def test_no_usage_within_the_bounds_costs_more_than_the_hold(
    some: tuple[Tier, ...], text_bytes: int, output: int, sequences: int, data: st.DataObject
) -> None:
    asked = item({"text_bytes": text_bytes, "messages": 2}, output_limit=output, sequences=sequences)
    bound = hold.bound(asked, price(some))
    most = prompt_tokens(asked)
    assert bound is not None
    assert most is not None
    prompt = data.draw(st.integers(0, most))
    cached = data.draw(st.integers(0, prompt))
    completion = data.draw(st.integers(0, max(sequences, 1) * output))
    assert charge_nanos(some, Counts(prompt, cached, completion)) <= bound.hold_nanos


def test_a_count_may_help_only_where_one_token_of_prompt_is_within_the_credit() -> None:
    # One token of prompt and a hundred of answer: 1 + 200 nano-USD.
    one = item({"text_bytes": 10_000}, output_limit=100)
    assert hold.count_may_help(one, price(), 201)
    assert not hold.count_may_help(one, price(), 200)
    assert not hold.count_may_help(item(output_limit=100, counted_prompt_tokens=9), price(), 10**9)
    # The bound is at a dearer tier than a short prompt would be.
    tiers = (Tier(0, 1_000_000, 0, 2_000_000), Tier(1_000, 9_000_000, 0, 9_000_000))
    assert hold.count_may_help(one, price(tiers), 201)
    # What was asked is not touched.
    assert not one.HasField("counted_prompt_tokens")
