"""Leases are measured, extended and taken up anew; none is ever shortened."""

from services.billing.lease import Leases

LEASE = 60_000


def kept(life_ms: int, now_ms: int = 0) -> Leases:
    leases = Leases(LEASE)
    leases.keep("a", leases.granted(now_ms, life_ms))
    return leases


def test_a_lease_ends_with_its_hard_end_at_the_latest() -> None:
    leases = kept(40_000)
    assert leases.lapsed(39_999, 9) == []
    assert leases.lapsed(40_000, 9) == ["a"]


def test_an_extension_never_shortens_and_stops_at_the_hard_end() -> None:
    leases = kept(100_000)
    lease = leases.get("a")
    assert lease is not None
    assert leases.extend(lease, 30_000)
    assert lease.until_ms == 90_000
    assert leases.extend(lease, 10_000)
    assert lease.until_ms == 90_000
    assert leases.extend(lease, 80_000)
    assert lease.until_ms == 100_000
    assert not leases.extend(lease, 90_000)


def test_lapsed_ones_come_in_bounded_portions() -> None:
    leases = Leases(LEASE)
    for number in range(5):
        leases.keep(str(number), leases.granted(0, LEASE))
    assert len(leases.lapsed(LEASE, 3)) == 3
    leases.drop("0")
    assert len(leases) == 4


def test_after_a_restart_every_hold_has_a_full_lease_whatever_the_clock_says() -> None:
    for wall_ms in (0, 1_000_000, 10**12):
        leases = Leases(LEASE)
        leases.restart(7, wall_ms, [("a", 1_000_000, 1_150_000)])
        lease = leases.get("a")
        assert lease is not None
        assert lease.until_ms == 7 + LEASE
        assert 7 + LEASE <= lease.hard_end_ms <= 7 + 150_000


def test_a_process_that_was_away_gives_every_hold_a_full_lease() -> None:
    leases = kept(70_000)
    leases.look(1_000)
    leases.look(31_000)
    lease = leases.get("a")
    assert lease is not None
    assert lease.until_ms == LEASE
    leases.look(31_000 + LEASE // 2 + 1)
    assert lease.until_ms == lease.hard_end_ms == 31_000 + LEASE // 2 + 1 + LEASE
