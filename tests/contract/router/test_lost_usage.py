"""A worker whose answers come without usage: it is out, and stays out for as long as nothing shows that it reports any."""

import asyncio
from pathlib import Path

import pytest
from speedinfer.router.v1.fleet_pb2 import WORKER_STATUS_HEALTHY, WORKER_STATUS_MISCONFIGURED

from tests.contract.router.gateway import MODEL, Gateway, running
from tests.fakes import scripts
from tests.fakes.worker import FakeWorker

FAST = {"probe_interval_s": 0.3, "probe_interval_down_s": 0.3}
WITHOUT = scripts.chat_stream(MODEL, ["x"], None)
WITH = scripts.chat_stream(MODEL, ["x"], scripts.usage(1, 1))


async def lose(gateway: Gateway) -> None:
    """Three complete answers without usage."""
    for _ in range(3):
        assert (await gateway.generate()).failure is not None
    assert gateway.worker().health.status == WORKER_STATUS_MISCONFIGURED


@pytest.mark.parametrize("check", ["metadata", "token"])
async def test_it_does_not_come_back_with_the_next_look(tmp_path: Path, worker: FakeWorker, check: str) -> None:
    # One token is answered as it should be, so that every check goes well.
    worker.scripts[MODEL] = lambda request: WITH if request.json.get("max_tokens") == 1 else WITHOUT
    async with running(tmp_path, **FAST) as gateway:
        await gateway.register(worker.url, config={"check": check})
        await lose(gateway)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await gateway.until(WORKER_STATUS_HEALTHY)
        assert "reports no usage" in gateway.worker().health.finding.detail
        await gateway.register(worker.url, config={"check": check})
        assert gateway.worker().health.status == WORKER_STATUS_HEALTHY
