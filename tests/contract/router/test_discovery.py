"""Workers found by a name: each address is one, they come and go with it, and a resolver that fails changes nothing."""

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import pytest
from speedinfer.router.v1 import inference_pb2, registry_pb2
from speedinfer.router.v1.fleet_pb2 import WORKER_STATUS_HEALTHY

from services.common.errors import ConfigurationError
from tests.contract.router.gateway import ADMIN, MODEL, Gateway, item, running
from tests.fakes import scripts
from tests.fakes.worker import FakeWorker
from tests.harness import zone

NAME = "workers.test"
OFTEN = {"discover_interval_s": 0.02}


class Resolver:
    """What the name leads to; an error is raised."""

    def __init__(self, *addresses: str) -> None:
        self.answer: Sequence[str] | OSError = addresses
        self.asked = 0

    def __call__(self) -> Sequence[str]:
        self.asked += 1
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer

    async def asked_again(self, times: int = 4) -> None:
        """Wait until what it says now was heard."""
        until = self.asked + times
        async with asyncio.timeout(10):
            while self.asked < until:
                await asyncio.sleep(0.01)


def template(worker: FakeWorker, **changes: Any) -> dict[str, Any]:
    return {
        "worker_id": "found", "runtime": "openai-compatible",
        "runtime_endpoint": f"http://{NAME}:{urlsplit(worker.url).port}/v1", "supported_models": [MODEL],
        "runtime_config": {"transport": "openai", "check": "metadata"}, **changes,
    }  # fmt: skip


def ids(gateway: Gateway) -> list[str]:
    return [worker.worker_id for worker in gateway.router.registry]


async def test_each_address_of_a_name_is_a_worker_that_comes_and_goes_with_it(
    tmp_path: Path, worker: FakeWorker
) -> None:
    resolver = Resolver("127.0.0.1", "127.0.0.2", "127.0.0.1")
    with zone.serves({NAME: resolver}):
        async with running(tmp_path, discover=[template(worker)], **OFTEN) as gateway:
            assert ids(gateway) == ["found-127.0.0.1", "found-127.0.0.2"]
            await gateway.until(WORKER_STATUS_HEALTHY, "found-127.0.0.1")
            assert (await gateway.generate()).counts == (12, 5)
            resolver.answer = ["127.0.0.1", "127.0.0.3"]
            await resolver.asked_again()
            assert ids(gateway) == ["found-127.0.0.1", "found-127.0.0.3"]
    # They are in no store.
    assert not (tmp_path / "router" / "registry.json").exists()


async def test_one_that_went_ends_what_runs_there(tmp_path: Path, worker: FakeWorker) -> None:
    go_on = asyncio.Event()
    rest = (scripts.delta(MODEL, finish_reason="stop"), scripts.frame(MODEL, choices=[], usage=scripts.usage(12, 1)))
    hello = scripts.delta(MODEL, content="Hello")
    worker.scripts[MODEL] = scripts.stream(hello, scripts.WaitFor(go_on), *rest)
    resolver = Resolver("127.0.0.1")
    with zone.serves({NAME: resolver}):
        async with running(tmp_path, discover=[template(worker)], **OFTEN) as gateway:
            await gateway.until(WORKER_STATUS_HEALTHY, "found-127.0.0.1")
            stream = aiter(gateway.inference.Generate(inference_pb2.GenerateRequest(item=item())))
            await anext(stream)
            resolver.answer = ["127.0.0.9"]
            await resolver.asked_again()
            assert ids(gateway) == ["found-127.0.0.9"]
            go_on.set()
            assert [answer.frame async for answer in stream][-1].HasField("end")


@pytest.mark.parametrize("error", [socket.gaierror(socket.EAI_AGAIN, "try again"), OSError(5, "broken")])
async def test_a_resolver_that_fails_changes_nothing(tmp_path: Path, worker: FakeWorker, error: OSError) -> None:
    resolver = Resolver("127.0.0.1")
    with zone.serves({NAME: resolver}):
        async with running(tmp_path, discover=[template(worker)], **OFTEN) as gateway:
            resolver.answer = error
            await resolver.asked_again(8)
            assert ids(gateway) == ["found-127.0.0.1"]


async def test_a_name_that_is_no_more_takes_its_workers_with_it_and_brings_them_back(
    tmp_path: Path, worker: FakeWorker
) -> None:
    resolver = Resolver("127.0.0.1")
    with zone.serves({NAME: resolver}):
        async with running(tmp_path, discover=[template(worker)], **OFTEN) as gateway:
            resolver.answer = []
            await resolver.asked_again(5)
            assert ids(gateway) == []
            resolver.answer = ["127.0.0.1"]
            await gateway.until(WORKER_STATUS_HEALTHY, "found-127.0.0.1")


async def test_an_address_that_no_worker_may_have_is_not_taken(tmp_path: Path, worker: FakeWorker) -> None:
    resolver = Resolver("169.254.169.254", "10.0.0.1", "::ffff:169.254.169.254", "127.0.0.1")
    with zone.serves({NAME: resolver}):
        networks = (ip_network("127.0.0.0/8"),)
        async with running(tmp_path, networks=networks, discover=[template(worker)], **OFTEN) as gateway:
            await resolver.asked_again()
            assert ids(gateway) == ["found-127.0.0.1"]


async def test_operators_cannot_change_what_a_name_says(tmp_path: Path, worker: FakeWorker) -> None:
    with zone.serves({NAME: Resolver("127.0.0.1")}):
        async with running(tmp_path, discover=[template(worker)]) as gateway:
            drain = registry_pb2.DrainWorkerRequest(worker_id="found-127.0.0.1")
            for refused in (
                gateway.register(worker.url, "found-127.0.0.1"),
                gateway.remove("found-127.0.0.1"),
                anext(aiter(gateway.registry.DrainWorker(drain, metadata=ADMIN))),
            ):
                with pytest.raises(grpc.aio.AioRpcError, match=r"was found by the name workers\.test"):
                    await refused


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"runtime_endpoint": "http://127.0.0.1:80/v1"}, "a name for a host"),
        ({"runtime_endpoint": f"https://{NAME}/v1"}, "must begin with http://"),
        ({"colour": "red"}, "colour is not known"),
    ],
)
async def test_a_template_of_which_no_worker_can_be_made_stops_the_start(
    tmp_path: Path, worker: FakeWorker, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"discover\[0\]: .*{said}"):
        async with running(tmp_path, discover=[template(worker, **changes)]):
            raise AssertionError("it started")
