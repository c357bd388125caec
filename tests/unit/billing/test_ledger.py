"""Transactions sum to zero or cannot be made."""

import pytest

from services.billing import ledger
from services.billing.ledger import Account, Charge, Kind, Leg, Transaction
from services.billing.usage import Counts


def test_a_charge_goes_from_the_customer_to_revenue() -> None:
    facts = Charge("r", "acct", "key", "m", 1, "v", Counts(1, None, 1), "w", 1, 1, 10, 7)
    booked = ledger.charge(Kind.CHARGE, facts)
    assert booked.legs == (Leg("acct", -7), Leg(ledger.REVENUE, 7))
    assert (booked.request_id, booked.charge) == ("r", facts)


def test_money_comes_from_outside_and_goes_back_there() -> None:
    credit = ledger.transfer(Kind.CREDIT, "acct", 5, operation_id="o")
    assert credit.legs == (Leg("acct", 5), Leg(ledger.OUTSIDE, -5))
    taken = ledger.transfer(Kind.ADJUSTMENT, "acct", -5, operation_id="o", note="why", request_id="r")
    assert taken.legs == (Leg("acct", -5), Leg(ledger.OUTSIDE, 5))


@pytest.mark.parametrize("legs", [(Leg("a", 1), Leg("b", 1)), (Leg("a", 0),), ()])
def test_legs_that_do_not_sum_to_zero_are_a_bug(legs: tuple[Leg, ...]) -> None:
    with pytest.raises(AssertionError):
        Transaction(Kind.CREDIT, legs)


def test_what_is_available_is_the_balance_without_holds() -> None:
    assert Account("a", "n", 0, balance_nanos=5, held_nanos=7).available_nanos == -2


def test_a_balance_stays_in_64_bits() -> None:
    assert ledger.fits(ledger.MAX_NANOS, 0)
    assert not ledger.fits(ledger.MAX_NANOS, 1)
    assert not ledger.fits(-ledger.MAX_NANOS, -1)
