"""The whole product for the fuzzing of a worker's bytes."""

from collections.abc import Iterator

import pytest

from tests.harness.stage import Customer, Stage


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The three services and a scripted worker."""
    with Stage(tmp_path_factory.mktemp("fuzzed")) as stage:
        yield stage


@pytest.fixture
def customer(stage: Stage) -> Customer:
    """A new account with USD 10."""
    return stage.customer()
