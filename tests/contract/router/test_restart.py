"""What a router finds when it starts: workers that were registered before, and registrations that are none any more."""

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from speedinfer.router.v1 import registry_pb2
from speedinfer.router.v1.fleet_pb2 import WORKER_STATUS_HEALTHY

from services.common.errors import ConfigurationError
from tests.contract.router.gateway import ADMIN, MODEL, running
from tests.fakes import scripts
from tests.fakes.worker import FakeWorker


def stored(tmp_path: Path) -> dict[str, Any]:
    """The stored registrations by id."""
    value = json.loads((tmp_path / "router" / "registry.json").read_text())
    return {entry["registration"]["worker_id"]: entry["registration"] for entry in value["workers"]}


def spoil(tmp_path: Path, worker_id: str) -> None:
    """Make a stored registration one that this version does not take."""
    path = tmp_path / "router" / "registry.json"
    value = json.loads(path.read_text())
    for entry in value["workers"]:
        if entry["registration"]["worker_id"] == worker_id:
            entry["registration"]["runtime_config"]["setting_of_old"] = "hush"
    path.write_text(json.dumps(value))


async def test_who_finds_the_router_finds_its_workers(tmp_path: Path, worker: FakeWorker) -> None:
    async with running(tmp_path) as gateway:
        await gateway.register(worker.url)
    async with running(tmp_path) as gateway:
        assert gateway.worker().health.status == WORKER_STATUS_HEALTHY
        assert (await gateway.generate()).counts == (12, 5)


async def test_a_worker_that_does_not_answer_holds_the_start_up_only_so_long(
    tmp_path: Path, worker: FakeWorker
) -> None:
    async with running(tmp_path) as gateway:
        await gateway.register(worker.url)
    worker.paths["/health"] = [scripts.Hang()]
    async with running(tmp_path, probe_timeout_s=30.0, check_timeout_s=0.2) as gateway:
        assert not gateway.worker().seen.is_set()
        assert (await gateway.generate()).failure is not None


async def test_a_stored_registration_that_is_none_is_kept_and_left_out(
    tmp_path: Path, worker: FakeWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(tmp_path) as gateway:
        await gateway.register(worker.url, "good")
        await gateway.register(worker.url, "old")
    spoil(tmp_path, "old")
    async with running(tmp_path) as gateway:
        assert [each.worker_id for each in (await gateway.fleet()).workers] == ["good"]
        said = capsys.readouterr()
        assert "old" in said.out + said.err
        assert "runtime_config.setting_of_old is not known" in said.out + said.err
        assert "hush" not in said.out + said.err
        # Whatever else is changed, it stays in the store as it is.
        await gateway.register(worker.url, "third")
        assert stored(tmp_path)["old"]["runtime_config"]["setting_of_old"] == "hush"
        # Registered anew it is a worker again.
        await gateway.register(worker.url, "old")
        assert "setting_of_old" not in stored(tmp_path)["old"]["runtime_config"]
        assert sorted(stored(tmp_path)) == ["good", "old", "third"]


async def test_a_stored_registration_that_is_none_can_be_removed(tmp_path: Path, worker: FakeWorker) -> None:
    async with running(tmp_path) as gateway:
        await gateway.register(worker.url, "old")
    spoil(tmp_path, "old")
    async with running(tmp_path) as gateway:
        request = registry_pb2.RemoveWorkerRequest(worker_id="old")
        await gateway.registry.RemoveWorker(request, metadata=ADMIN)
        assert stored(tmp_path) == {}
        with pytest.raises(grpc.aio.AioRpcError) as missing:
            await gateway.registry.RemoveWorker(request, metadata=ADMIN)
        assert missing.value.code() == grpc.StatusCode.NOT_FOUND


async def test_a_wrong_registration_in_the_settings_still_stops_the_start(tmp_path: Path) -> None:
    document = {
        "worker_id": "w", "runtime": "vllm", "runtime_endpoint": "http://127.0.0.1:9", "supported_models": [MODEL],
        "runtime_config": {"transport": "openai", "colour": "red"},
    }  # fmt: skip
    with pytest.raises(ConfigurationError, match=r"runtime_config.colour is not known"):
        async with running(tmp_path, [document]):
            raise AssertionError("it started")


async def test_two_routers_never_write_at_once(tmp_path: Path, worker: FakeWorker) -> None:
    """Changes wait while a successor reads; then they are the successor's, or, if it does not come to be, done."""
    async with running(tmp_path) as gateway:
        await gateway.router.prepare()
        waiting = asyncio.create_task(gateway.register(worker.url, "a"))
        _, pending = await asyncio.wait([waiting], timeout=0.3)
        assert pending
        assert not (tmp_path / "router" / "registry.json").exists()
        gateway.router.registrar.thaw()
        await waiting
        assert set(stored(tmp_path)) == {"a"}

        await gateway.router.prepare()
        late = asyncio.create_task(gateway.register(worker.url, "b"))
        gateway.router.registrar.supersede()
        with pytest.raises(grpc.aio.AioRpcError) as turned_away:
            await late
        assert turned_away.value.code() is grpc.StatusCode.CANCELLED
        assert set(stored(tmp_path)) == {"a"}
