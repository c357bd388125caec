"""The suite runs over every store; a new one is a further parameter of `database`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.billing.postgresql import Server
from tests.contract.billing.service import Client, Service


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.processes, pytest.mark.real])])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'billing.db'}"
    server: Server = request.getfixturevalue("postgresql")
    server.empty()
    return server.url


@pytest.fixture
async def service(database: str, tmp_path: Path) -> AsyncIterator[Service]:
    service = Service(tmp_path, database)
    await service.start()
    yield service
    await service.stop()


@pytest.fixture
async def client(service: Service) -> Client:
    """A client of a service whose model costs 1 USD per million tokens of either kind."""
    await service.client.set_price()
    return service.client
