"""One stage for all fault tests; each test has a customer of its own."""

from collections.abc import Iterator

import pytest

from tests.harness.stage import Customer, Stage


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The whole product and the scripted worker."""
    with Stage(tmp_path_factory.mktemp("stage")) as stage:
        yield stage


@pytest.fixture
def customer(stage: Stage) -> Customer:
    """A new account with USD 10."""
    return stage.customer()
