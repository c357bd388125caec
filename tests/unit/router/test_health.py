"""A worker that reports no usage any more, and what brings it back."""

from speedinfer.router.v1.fleet_pb2 import (
    WORKER_STATUS_HEALTHY,
    WORKER_STATUS_MISCONFIGURED,
    WORKER_STATUS_UNHEALTHY,
)

from services.router.health import ANSWERS_WITHOUT_USAGE, NO_USAGE, Health, Thresholds
from services.router.transport.port import CONNECT, Finding


def without_usage(*, checks_read_usage: bool) -> Health:
    """A worker that was healthy until its answers came without usage."""
    health = Health(Thresholds(2, 1), checks_read_usage=checks_read_usage)
    health.on_check(Finding())
    assert health.status == WORKER_STATUS_HEALTHY
    for _ in range(ANSWERS_WITHOUT_USAGE):
        health.on_usage(False)
    assert health.status == WORKER_STATUS_MISCONFIGURED
    return health


def test_a_check_that_reads_no_usage_brings_nothing_back() -> None:
    health = without_usage(checks_read_usage=False)
    for _ in range(10):
        health.on_check(Finding())
        assert health.status == WORKER_STATUS_MISCONFIGURED
        assert health.finding == NO_USAGE


def test_being_down_meanwhile_changes_nothing() -> None:
    health = without_usage(checks_read_usage=False)
    health.on_check(Finding(CONNECT, "refused"))
    assert health.status == WORKER_STATUS_UNHEALTHY
    health.on_check(Finding())
    assert health.status == WORKER_STATUS_MISCONFIGURED
    assert health.finding == NO_USAGE


def test_a_check_that_reads_usage_does() -> None:
    health = without_usage(checks_read_usage=True)
    health.on_check(Finding())
    assert health.status == WORKER_STATUS_HEALTHY
    # And it takes as many answers again to lose it.
    assert not health.on_usage(False)
