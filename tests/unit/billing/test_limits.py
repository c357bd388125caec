"""Windows and the order in which limits are looked at."""

from datetime import UTC, datetime

import pytest

from services.billing.limits import (
    Counters,
    Limits,
    day_start,
    judge,
    minute_start,
    month_start,
    shared_models,
    tighter,
)


def at(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp()) * 1000  # type: ignore[misc, arg-type]


NOW = at(2026, 12, 31, 23, 59, 58)


def test_windows_are_utc() -> None:
    assert minute_start(NOW) == at(2026, 12, 31, 23, 59)
    assert day_start(NOW) == at(2026, 12, 31)
    assert month_start(NOW) == at(2026, 12, 1)
    assert month_start(at(2024, 2, 29, 12)) == at(2024, 2, 1)


def counters(requests: int, tokens: int, spend: int) -> Counters:
    kept = Counters()
    kept.roll(NOW)
    for _ in range(requests):
        kept.count(0, 0)
    kept.correct(NOW, tokens, spend)
    return kept


@pytest.mark.parametrize(
    ("limits", "reached", "retry_after_ms"),
    [
        (Limits(2, 109, 4, (), None, 59, 59), "requests_per_minute", 2_000),
        (Limits(3, 109, 4, (), None, 59, 59), "tokens_per_minute", 2_000),
        # More than a whole minute has: waiting does not help.
        (Limits(3, 9, 4, (), None, 59, 59), "tokens_per_minute", 0),
        (Limits(3, 110, 4, (), None, 59, 59), "concurrency", 1_000),
        (Limits(3, 110, 5, (), None, 59, 59), "daily_spend", 0),
        (Limits(3, 110, 5, (), None, 60, 59), "monthly_spend", 0),
        (Limits(3, 110, 5, (), None, 60, 60), None, 0),
        (Limits(), None, 0),
        (Limits(0), "requests_per_minute", 2_000),
    ],
)
def test_the_first_limit_that_is_exceeded_is_named(limits: Limits, reached: str | None, retry_after_ms: int) -> None:
    found = judge(limits, counters(2, 100, 50), open_holds=4, tokens=10, hold_nanos=10, now_ms=NOW)
    assert (found.limit if found else None, found.retry_after_ms if found else 0) == (reached, retry_after_ms)


def test_the_sentence_says_whose_limit_it_is() -> None:
    for name, limits in (
        ("requests", Limits(0)),
        ("tokens", Limits(None, 9)),
        ("tokens", Limits(None, 109)),
        ("open", Limits(None, None, 4)),
        ("UTC day", Limits(daily_spend_nanos=59)),
        ("UTC month", Limits(monthly_spend_nanos=59)),
    ):
        found = judge(limits, counters(2, 100, 50), 4, 10, 10, NOW, "account")
        assert found is not None
        assert name in found.message
        assert "account" in found.message
        assert "key" not in found.message


def test_the_tighter_of_two_limits_is_the_one_with_less_left() -> None:
    assert tighter((None, 5), (None, 5)) is None
    assert tighter((10, 4), (None, 9)) == (10, 6)
    assert tighter((10, 4), (100, 95)) == (100, 5)
    assert tighter((10, 4), (7, 1)) == (7, 6)
    # What was used before the limit was set may be more than it.
    assert tighter((10, 40), (7, 1)) == (10, 0)


def test_two_allow_lists_allow_what_both_name() -> None:
    some, others = Limits(models=("a", "b")), Limits(models=("b", "c"))
    assert shared_models(Limits(), Limits()) == ()
    assert shared_models(some, Limits()) == shared_models(Limits(), some) == ("a", "b")
    assert shared_models(some, others) == ("b",)
    # An empty list would mean all.
    assert shared_models(some, Limits(models=("c",))) == ("",)


def test_a_correction_reaches_only_windows_that_are_current() -> None:
    kept = counters(1, 100, 50)
    kept.roll(NOW + 2_000)
    kept.correct(NOW, 7, 7)
    assert (kept.minute.tokens, kept.day.spend_nanos, kept.month.spend_nanos) == (0, 0, 0)
    kept = counters(1, 100, 50)
    kept.correct(NOW - 60_000, 7, 7)
    assert (kept.minute.tokens, kept.day.tokens, kept.month.spend_nanos) == (100, 107, 57)


def used(kept: Counters) -> list[tuple[int, int, int, int]]:
    return [(one.start_ms, one.requests, one.tokens, one.spend_nanos) for one in (kept.minute, kept.day, kept.month)]


def test_a_clock_that_is_stepped_back_opens_no_second_window() -> None:
    kept = counters(2, 100, 50)
    for back_ms in (3_000, 3_600_000, 3_600_000 + 5):
        kept.roll(NOW - back_ms)
        assert [one[1:] for one in used(kept)] == [(2, 100, 50)] * 3


@pytest.mark.parametrize("ahead", [at(2027, 1, 1), at(2027, 3, 5, 6, 7), at(2126, 1, 1)], ids=["2s", "months", "100y"])
def test_a_clock_that_was_ahead_blocks_no_longer_than_until_the_current_windows_end(ahead: int) -> None:
    kept = counters(2, 100, 50)
    kept.roll(ahead)
    kept.count(7, 8)
    kept.roll(NOW)
    starts = (minute_start(NOW), day_start(NOW), month_start(NOW))
    # What was counted while it was ahead still counts: a step back frees nothing.
    assert used(kept) == [(start, 1, 7, 8) for start in starts]
    # The end of the minute here is that of the day and of the month as well.
    kept.roll(at(2027, 1, 1))
    assert used(kept) == [(at(2027, 1, 1), 0, 0, 0)] * 3


def test_what_was_counted_while_the_clock_was_ahead_is_given_back_to_no_other_window() -> None:
    ahead = at(2027, 1, 1)
    kept = Counters()
    kept.roll(ahead)
    kept.count(100, 100)
    kept.roll(NOW)
    kept.correct(ahead, -90, -90)
    assert kept.day.spend_nanos == 100
    # The window of that name comes by itself: what the request gives back was never counted in it.
    kept.roll(ahead)
    kept.count(5, 5)
    kept.correct(ahead, -90, -90)
    assert used(kept) == [(ahead, 1, 0, 0)] * 3


def test_who_only_looks_changes_no_window() -> None:
    kept = counters(2, 100, 50)
    before = used(kept)
    assert kept.at(NOW) is kept
    assert used(kept.at(at(2027, 1, 1))) == [(at(2027, 1, 1), 0, 0, 0)] * 3
    assert used(kept) == before
