"""Three routers as processes on one registry, behind an edge: what holds when one is killed and when the database goes away."""

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from speedinfer.router.v1 import inference_pb2, inference_pb2_grpc

from services.cli import readiness
from services.common import rpc
from tests.contract.router.gateway import MODEL, item
from tests.contract.router.registry_database import RegistryDatabase
from tests.fakes import scripts
from tests.fakes.worker import FakeWorker
from tests.harness.ports import free_port
from tests.harness.product import Product
from tests.harness.until import until, until_async

pytestmark = [pytest.mark.processes, pytest.mark.real]

BOUND = 5


class Further:
    """One more router of a product, with its own folder."""

    def __init__(self, product: Product, name: str, address: str) -> None:
        self.address = address
        self.metrics = f"127.0.0.1:{free_port()}"
        self.log = product.folder / f"{name}.log"
        environment = {
            **product.environment,
            "SPEEDINFER_DATA_DIR": str(product.folder / name),
            "SPEEDINFER_ROUTER__LISTEN": address,
            "SPEEDINFER_ROUTER__METRICS_LISTEN": self.metrics,
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "services.cli.main", "router", "--with-parent", str(os.getpid())],
                env=environment,
                cwd=product.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait(self) -> None:
        until(lambda: readiness.grpc_health(self.address).ready, f"{self.address} is ready", 60)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def routers(folder: Path, database: str) -> Iterator[tuple[Product, list[Further]]]:
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    product = Product(
        folder, {"SPEEDINFER_ROUTER__DATABASE": database, "SPEEDINFER_ADMIN_TOKEN": "sat-of-three-routers"}
    )
    product.environment["SPEEDINFER_EDGE__ROUTER_TARGET"] = ",".join([product.address("router"), *addresses])
    with product:
        further = [Further(product, f"router-{number}", each) for number, each in enumerate(addresses)]
        try:
            for router in further:
                router.wait()
            yield product, further
        finally:
            for router in further:
                router.end()


def metric(address: str, name: str) -> float | None:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
    return None


def ready(product: Product) -> Any:
    with urllib.request.urlopen(f"{product.url}/readyz", timeout=5) as answer:
        return json.loads(answer.read())


async def begin(address: str, number: int) -> tuple[grpc.aio.Channel, list[Any]]:
    """So many streams at a router; those that were accepted."""
    channel = rpc.channel(address)
    stub = inference_pb2_grpc.InferenceServiceStub(channel)
    calls = [stub.Generate(inference_pb2.GenerateRequest(item=item())) for _ in range(number)]
    first = await asyncio.gather(*(anext(aiter(call)) for call in calls))
    accepted = [
        call for call, answer in zip(calls, first, strict=True) if answer.frame.WhichOneof("frame") == "accepted"
    ]
    return channel, accepted


async def test_three_routers_share_and_outlive_one_another(
    shared_database: RegistryDatabase, tmp_path: Path, worker: FakeWorker
) -> None:
    worker.scripts[MODEL] = scripts.stream(scripts.delta(MODEL, content="Hello"), scripts.Hang())
    document = {
        "worker_id": "w1", "runtime": "openai-compatible", "runtime_endpoint": worker.url, "supported_models": [MODEL],
        "runtime_config": {"transport": "openai", "check": "metadata", "max_concurrency": BOUND},
    }  # fmt: skip
    scene = routers(tmp_path, shared_database.url)
    product, (second, third) = await asyncio.to_thread(scene.__enter__)
    try:
        addresses = [product.address("router"), second.address, third.address]
        await asyncio.to_thread(product.register, document)

        def known() -> bool:
            return all(metric(each.metrics, "speedinfer_router_routers") == 3 for each in (second, third))

        await until_async(known, "all three share")
        begun: list[tuple[grpc.aio.Channel, list[Any]]] = []

        async def all_at_once(at: list[str]) -> int:
            begun.extend(await asyncio.gather(*(begin(address, BOUND) for address in at)))
            return sum(len(calls) for _, calls in begun)

        async def give_back() -> None:
            for channel, _ in begun:
                await channel.close()
            begun.clear()

        async def until_whole(at: list[str]) -> None:
            """Until these routers have all places between them, and never more."""
            # By the clock and not by tries, which may be over before a killed router's lease is.
            end = time.monotonic() + 60
            while time.monotonic() < end:
                accepted = await all_at_once(at)
                assert accepted <= BOUND
                await give_back()
                await until_async(lambda: idle(product, second), "nothing runs", 10)
                if accepted == BOUND:
                    return
            raise AssertionError("the places are not all given")

        await until_whole(addresses)
        third.end()
        # Its share comes back with the end of its lease.
        await until_whole(addresses[:2])
        with shared_database.away():
            await until_async(
                lambda: metric(second.metrics, "speedinfer_router_registry_connected") == 0, "that it is cut off"
            )
            # Whole still, and still no more than that.
            await until_whole(addresses[:2])
            assert (await asyncio.to_thread(ready, product))["degraded"] == ["registry"]
            refused = await asyncio.to_thread(product.run, "workers", "remove", "w1")
            assert refused.code == 1
            assert "the shared registry cannot be reached" in refused.err
        await until_async(lambda: ready(product) == {"status": "ok"}, "that all is well")
        await asyncio.to_thread(product.command, "workers", "remove", "w1")
        await until_async(lambda: not readiness_fleet(second.address), "that the second one knows of the removal")
    finally:
        await asyncio.to_thread(scene.__exit__, None, None, None)


def idle(product: Product, second: Further) -> bool:
    places = (product.address("router metrics"), second.metrics)
    return all(metric(each, "speedinfer_router_in_flight") == 0 for each in places)


def readiness_fleet(address: str) -> list[str]:
    with grpc.insecure_channel(address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        answer = stub.GetFleet(inference_pb2.GetFleetRequest(), timeout=5)
    return [worker.worker_id for worker in answer.fleet.workers]
