"""Amounts survive every border exactly."""

import pytest
from google.type import money_pb2
from hypothesis import given
from hypothesis import strategies as st

from services.common.money import MAX_NANOS, MoneyError, format_usd, from_money, parse_usd, to_money

amounts = st.integers(-MAX_NANOS, MAX_NANOS)


@given(amounts)
def test_wire_form_gives_the_amount_back(nanos: int) -> None:
    assert from_money(to_money(nanos)) == nanos


@given(amounts)
def test_text_gives_the_amount_back(nanos: int) -> None:
    assert parse_usd(format_usd(nanos)) == nanos


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("10", 10_000_000_000),
        ("9.999994600", 9_999_994_600),
        ("0.20", 200_000_000),
        ("-0.000000001", -1),
        ("+1.5", 1_500_000_000),
        (" 7 ", 7_000_000_000),
    ],
)
def test_text_is_read_by_its_digits(text: str, nanos: int) -> None:
    assert parse_usd(text) == nanos


@pytest.mark.parametrize("text", ["", "1.", ".5", "1e3", "0.0000000001", "NaN", "1,5", "$1", "٣", "9999999999"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(MoneyError):
        parse_usd(text)


@pytest.mark.parametrize("text", ["9223372036.854775808", "9999999999", "99999999999999999999", "-" + "9" * 5000])
def test_what_is_too_large_is_called_that(text: str) -> None:
    with pytest.raises(MoneyError, match="is too large: an amount is at most 9223372036 USD"):
        parse_usd(text)


def test_zeros_in_front_make_no_amount_large() -> None:
    assert parse_usd("0" * 5000 + "7") == 7_000_000_000


@pytest.mark.parametrize(
    "money",
    [
        money_pb2.Money(currency_code="EUR", units=1),
        money_pb2.Money(currency_code="USD", units=1, nanos=-1),
        money_pb2.Money(currency_code="USD", units=-1, nanos=1),
        money_pb2.Money(currency_code="USD", nanos=1_000_000_000),
        money_pb2.Money(currency_code="USD", units=2**63 - 1),
    ],
)
def test_impossible_wire_amounts_are_refused(money: money_pb2.Money) -> None:
    with pytest.raises(MoneyError):
        from_money(money)
