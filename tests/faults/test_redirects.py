"""What a worker answers leads nowhere: not its redirects, not its links, not the other services that it advertises."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from speedinfer.router.v1.fleet_pb2 import WORKER_STATUS_MISCONFIGURED, WORKER_STATUS_UNHEALTHY

from tests.contract.router.gateway import MODEL, Gateway, running
from tests.fakes import scripts
from tests.fakes.worker import FakeWorker
from tests.harness import attempts
from tests.harness.listener import Listener

REDIRECTS = (300, 301, 302, 303, 305, 307, 308)
TRITON: dict[str, Any] = {"runtime": "triton", "config": {"transport": "triton", "model_name": "m", "protocol": "http"}}


@pytest.fixture
async def gateway(tmp_path: Any) -> AsyncIterator[Gateway]:
    async with running(tmp_path, drain_s=2.0, check_timeout_s=5.0, failures_to_open_circuit=1000) as started:
        yield started


def pointers(port: int) -> dict[str, str]:
    """Every header that has ever led a client elsewhere."""
    url = f"http://127.0.0.2:{port}/v1"
    return {
        "Location": url,
        "Content_Location": url,
        "Refresh": f"0; url={url}",
        "Link": f'<{url}>; rel="next", <{url}>; rel="preload"',
        "Alt_Svc": f'h2="127.0.0.2:{port}", http/1.1="127.0.0.2:{port}"',
        "Proxy_Authenticate": "Basic",
    }


async def test_a_redirected_request_fails_and_is_not_sent_again(gateway: Gateway) -> None:
    async with Listener("127.0.0.2") as elsewhere, FakeWorker() as worker:
        await gateway.register(worker.url)
        with attempts.noted() as tried:
            for status in REDIRECTS:
                worker.requests.clear()
                worker.scripts[MODEL] = [scripts.answer(status, b"", **pointers(elsewhere.port))]
                for stream in (True, False):
                    answer = await gateway.generate(stream=stream)
                    assert answer.failure is not None, status
                    assert str(elsewhere.port) not in answer.failure.message
        assert {address[1] for address in tried} <= {worker.port}
    assert elsewhere.came == []


async def test_a_good_answer_that_points_elsewhere_is_only_an_answer(gateway: Gateway) -> None:
    async with Listener("127.0.0.2") as elsewhere, FakeWorker() as worker:
        await gateway.register(worker.url)
        whole = scripts.chat_whole(MODEL, "Hello", scripts.usage(12, 5))
        worker.scripts[MODEL] = [scripts.json_answer(whole, **pointers(elsewhere.port))]
        for _ in range(3):
            assert (await gateway.generate(stream=False)).counts == (12, 5)
    assert elsewhere.came == []


@pytest.mark.parametrize("status", REDIRECTS)
@pytest.mark.parametrize("kind", ["openai", "triton"])
async def test_a_check_that_is_redirected_finds_no_worker(gateway: Gateway, status: int, kind: str) -> None:
    async with Listener("127.0.0.2") as elsewhere, FakeWorker() as worker:
        away = [scripts.answer(status, b"", **pointers(elsewhere.port))]
        paths = (
            "/health",
            "/v1/models",
            "/v2/health/ready",
            "/v2/repository/index",
            "/v2/models/m",
            "/v2/models/m/ready",
            "/v2/models/m/config",
        )
        worker.paths = dict.fromkeys(paths, away)
        with attempts.noted() as tried:
            more = TRITON if kind == "triton" else {}
            detail = await gateway.register(f"http://127.0.0.1:{worker.port}", **more)
        assert detail.worker.status in (WORKER_STATUS_UNHEALTHY, WORKER_STATUS_MISCONFIGURED)
        assert {address[1] for address in tried} <= {worker.port}
    assert elsewhere.came == []
