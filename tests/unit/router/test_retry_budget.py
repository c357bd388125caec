"""Retries are a share of requests."""

from services.router.retry_budget import RetryBudget


def test_a_storm_of_failures_is_retried_for_a_share_of_it() -> None:
    budget = RetryBudget(share=0.2, size=10)
    retries = 0
    for _ in range(1000):
        budget.earn()
        retries += budget.spend()
    assert 200 <= retries <= 210


def test_single_failures_are_always_retried() -> None:
    budget = RetryBudget(share=0.2, size=10)
    for request in range(1000):
        budget.earn()
        if request % 10 == 0:
            assert budget.spend()


def test_what_is_saved_is_bounded() -> None:
    budget = RetryBudget(share=0.2, size=3)
    for _ in range(10_000):
        budget.earn()
    assert [budget.spend() for _ in range(5)] == [True, True, True, False, False]
