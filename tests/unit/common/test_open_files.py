"""A service may open as many files as the operator allows, whatever the shell that started it."""

import resource
from collections.abc import Iterator

import pytest

from services.common import open_files


@pytest.fixture
def hard() -> Iterator[int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_soft_bound_is_raised_to_the_hard_one(hard: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    allowed = open_files.allow_many()
    assert allowed == (open_files.WANTED if hard == resource.RLIM_INFINITY else min(hard, open_files.WANTED))
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (allowed, hard)


def test_a_bound_that_is_high_enough_stays(hard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "WANTED", 600)
    resource.setrlimit(resource.RLIMIT_NOFILE, (700, hard))
    assert open_files.allow_many() == 700
