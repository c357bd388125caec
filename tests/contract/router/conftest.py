"""A fresh router and a fresh worker for each test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.contract.billing.postgresql import Server
from tests.contract.router import registry_database
from tests.contract.router.gateway import Gateway, running
from tests.contract.router.registry_database import RegistryDatabase
from tests.fakes.worker import FakeWorker


@pytest.fixture
async def worker() -> AsyncIterator[FakeWorker]:
    async with FakeWorker() as fake:
        yield fake


@pytest.fixture
async def second() -> AsyncIterator[FakeWorker]:
    async with FakeWorker() as fake:
        yield fake


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running(tmp_path / "data", drain_s=2.0) as started:
        yield started


@pytest.fixture(scope="session")
def made_registry(postgresql: Server) -> Iterator[RegistryDatabase]:
    with registry_database.made(postgresql) as database:
        yield database


@pytest.fixture
def shared_database(made_registry: RegistryDatabase) -> RegistryDatabase:
    made_registry.empty()
    return made_registry
