"""Proxies that the environment names are used for nothing: not for workers, not between our own services."""

from pathlib import Path
from typing import Any

import pytest
from speedinfer.router.v1.fleet_pb2 import WORKER_STATUS_HEALTHY

from services.router.transport.triton_grpc import TritonGrpc
from tests.contract.router.gateway import running
from tests.fakes import scripts
from tests.fakes.triton_grpc import FakeTritonGrpc
from tests.fakes.worker import FakeWorker
from tests.harness import zone
from tests.harness.listener import Listener

NAMES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets every name that a proxy is known by, in both cases."""

    def point_to(port: int) -> None:
        for name in NAMES:
            monkeypatch.setenv(name, f"http://127.0.0.2:{port}")
            monkeypatch.setenv(name.upper(), f"http://127.0.0.2:{port}")
        for name in ("no_proxy", "no_grpc_proxy"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)

    return point_to


async def test_workers_are_reached_without_one_and_so_are_our_services(environment: Any, tmp_path: Path) -> None:
    async with Listener("127.0.0.2") as proxy, FakeWorker() as worker:
        environment(proxy.port)
        worker.paths = {path: [scripts.json_answer({}, 400)] for path in ("/v2/models/m", "/v2/repository/index")}
        with zone.serves({"worker.test": ["127.0.0.1"]}):
            async with running(tmp_path, drain_s=2.0, check_timeout_s=5.0) as gateway:
                for host in ("127.0.0.1", "worker.test"):
                    detail = await gateway.register(f"http://{host}:{worker.port}")
                    assert detail.worker.status == WORKER_STATUS_HEALTHY
                    assert (await gateway.generate()).end is not None
                config = {"transport": "triton", "model_name": "m", "connect_timeout_s": 1}
                await gateway.register(f"http://worker.test:{worker.port}", "w2", runtime="triton", config=config)
        assert "/v2/repository/index" in [request.path for request in worker.requests]
    assert proxy.came == []


@pytest.mark.parametrize("host", ["127.0.0.1", "worker.test"])
async def test_triton_is_reached_over_grpc_without_one(environment: Any, host: str) -> None:
    async with Listener("127.0.0.2") as proxy, FakeTritonGrpc() as server:
        environment(proxy.port)
        with zone.serves({"worker.test": ["127.0.0.1"]}):
            triton = TritonGrpc(
                f"{host}:{server.port}", secure=False, headers=[], connect_timeout_s=5.0, max_answer_bytes=1000
            )
            assert await triton.answers(5.0) == ""
            await triton.close()
    assert proxy.came == []
