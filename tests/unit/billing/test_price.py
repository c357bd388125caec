"""Price arithmetic against exact fractions."""

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.billing.ledger import MAX_NANOS
from services.billing.price import MAX_PRICE_NANOS, Tier, charge_nanos, check_tiers, tier_for
from services.billing.usage import MAX_COUNT, Counts
from services.common.money import parse_usd

prices = st.integers(0, MAX_PRICE_NANOS)
tokens = st.integers(0, MAX_COUNT)


def tier(prompt: str, cached: str, completion: str, start: int = 0) -> Tier:
    return Tier(start, parse_usd(prompt), parse_usd(cached), parse_usd(completion))


def exact(one: Tier, usage: Counts) -> Fraction:
    """In nano-USD, by fractions of a USD."""
    cached, nanos = usage.cached or 0, 10**9
    usd = (
        Fraction(one.prompt_nanos, nanos) * (usage.prompt - cached)
        + Fraction(one.cached_nanos, nanos) * cached
        + Fraction(one.completion_nanos, nanos) * (usage.completion or 0)
    )
    return usd / 1_000_000 * nanos


@pytest.mark.parametrize(
    ("price", "usage", "usd"),
    [
        (tier("1.40", "0.26", "4.40"), Counts(27_147, 27_146, 351), "0.008603760"),
        (tier("0.20", "0.20", "0.60"), Counts(12, None, 5), "0.000005400"),
    ],
)
def test_the_checks_of_the_contract(price: Tier, usage: Counts, usd: str) -> None:
    assert charge_nanos([price], usage) == parse_usd(usd) == exact(price, usage)


@given(prices, prices, prices, tokens, tokens, tokens)
def test_a_charge_is_the_exact_sum_rounded_up_once(
    prompt: int, cached: int, completion: int, all_tokens: int, cached_tokens: int, generated: int
) -> None:
    price = Tier(0, max(prompt, cached), min(prompt, cached), completion)
    usage = Counts(all_tokens, min(cached_tokens, all_tokens), generated)
    charge = charge_nanos([price], usage)
    assert charge == math.ceil(exact(price, usage))
    assert 0 <= charge <= MAX_NANOS


def test_absent_cached_and_completion_counts_cost_nothing() -> None:
    price = tier("1", "0.5", "3")
    assert charge_nanos([price], Counts(7, None, None)) == charge_nanos([price], Counts(7, 0, 0)) == 7_000


def test_a_millionth_of_a_nano_is_a_whole_nano() -> None:
    assert charge_nanos([Tier(0, 1, 1, 0)], Counts(1, None, 0)) == 1
    assert charge_nanos([Tier(0, 1, 1, 0)], Counts(1_000_000, None, 0)) == 1
    assert charge_nanos([Tier(0, 1, 1, 0)], Counts(1_000_001, None, 0)) == 2
    assert charge_nanos([Tier(0, 0, 0, 0)], Counts(MAX_COUNT, None, MAX_COUNT)) == 0


@given(st.lists(st.integers(1, 1_000), unique=True, max_size=5), st.integers(0, 1_100))
def test_the_tier_is_the_last_whose_start_is_reached(starts: list[int], prompt: int) -> None:
    tiers = [Tier(start, 0, 0, 0) for start in sorted({0, *starts})]
    assert tier_for(tiers, prompt).from_prompt_tokens == max(start for start in (0, *starts) if start <= prompt)


GOOD = Tier(0, 10, 5, 10)


@pytest.mark.parametrize(
    ("tiers", "field"),
    [
        ([], "tiers"),
        ([replace(GOOD, from_prompt_tokens=1)], "tiers[0].from_prompt_tokens"),
        ([GOOD, GOOD], "tiers[1].from_prompt_tokens"),
        ([replace(GOOD, prompt_nanos=-1)], "tiers[0].prompt"),
        ([replace(GOOD, completion_nanos=MAX_PRICE_NANOS + 1)], "tiers[0].completion"),
        ([replace(GOOD, cached_nanos=11)], "tiers[0].cached_prompt"),
    ],
)
def test_what_is_wrong_with_tiers_is_named(tiers: list[Tier], field: str) -> None:
    wrong = check_tiers(tiers)
    assert wrong is not None
    assert wrong[0] == field


def test_good_tiers_are_good() -> None:
    assert check_tiers([GOOD, replace(GOOD, from_prompt_tokens=5, cached_nanos=10)]) is None
