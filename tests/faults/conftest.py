"""One stage for all fault tests; each test has a customer of its own."""

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tests.faults.well import WELL
from tests.harness import http_client
from tests.harness.reservations import reservations
from tests.harness.stage import CREDIT, Customer, Stage


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The whole product and the scripted worker."""
    with Stage(tmp_path_factory.mktemp("stage")) as stage:
        yield stage


@pytest.fixture
def customer(stage: Stage) -> Customer:
    """A new account with USD 10."""
    return stage.customer()


@pytest.fixture(scope="module")
def asker(stage: Stage) -> Customer:
    """One customer for a whole file."""
    return stage.customer()


@pytest.fixture
async def http(stage: Stage, asker: Customer) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the asker's key."""
    headers = {"authorization": f"Bearer {asker.key}"}
    async with http_client.plain(base_url=stage.product.base_url, headers=headers, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def untouched(stage: Stage, asker: Customer) -> Iterator[None]:
    """Whatever the asker sends in a file: nothing is reserved and nothing dispatched, though the worker would answer well."""
    stage.play(WELL)
    yield
    assert stage.product.balance(asker.account_id)["balance"] == f"{CREDIT}.000000000"
    assert reservations(stage.product, asker.account_id) == []
