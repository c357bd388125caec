"""How long to wait after failures."""

from random import Random

from services.common.backoff import Backoff


def test_waits_grow_to_their_bound_and_begin_anew() -> None:
    backoff = Backoff(0.5, 30.0, Random(7))
    for due in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0):
        assert due / 2 <= backoff.next_s() <= due
    backoff.reset()
    assert backoff.next_s() <= 0.5


def test_two_do_not_wait_alike() -> None:
    assert Backoff(0.5, 30.0, Random(1)).next_s() != Backoff(0.5, 30.0, Random(2)).next_s()
