"""What the suites of several services share."""

from collections.abc import Iterator

import pytest

from tests.contract.billing.postgresql import Server, running


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """The PostgreSQL server of the run."""
    with running() as server:
        yield server
