"""A fresh router and a fresh worker for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.router.gateway import Gateway, running
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
