"""When a row of streams is no measurement, and which steps are taken."""

from typing import Any

import pytest

from benchmarks.growth import STREAMS, fault, up_to

GOOD: dict[str, Any] = {"streams": 5_000, "open_at_once": 5_000, "errors": 0, "lost_events": 0, "not_charged": 0}


def test_a_row_that_holds_everything_has_no_fault() -> None:
    assert fault(GOOD) == ""


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"open_at_once": 4_990}, "10 not open at once"),
        ({"errors": 1, "lost_events": 55}, "1 with an error, 55 events lost"),
        ({"lost_events": -3}, "-3 events lost"),
        ({"not_charged": 2}, "2 not charged"),
    ],
)
def test_what_a_row_does_not_hold_is_said(changes: dict[str, int], says: str) -> None:
    assert fault(GOOD | changes) == says


def test_steps_are_between_the_least_and_the_most() -> None:
    assert up_to(STREAMS, most=10**6, least=5_000) == [5_000]
    assert up_to(STREAMS, most=100) == [10, 30, 100]
