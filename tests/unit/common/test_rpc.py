"""The gRPC set-up: the gate in front of admin services, errors with one reason, health that follows the drain."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc._cython.cygrpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from speedinfer.router.v1 import fleet_pb2, inference_pb2, inference_pb2_grpc, registry_pb2, registry_pb2_grpc

from services.common import rpc
from services.common.errors import NotFound

ADMIN = "speedinfer.router.v1.WorkerRegistryService"
OPEN = "speedinfer.router.v1.InferenceService"


class Registry(registry_pb2_grpc.WorkerRegistryServiceServicer):
    async def GetWorker(
        self, request: registry_pb2.GetWorkerRequest, context: grpc.aio.ServicerContext
    ) -> registry_pb2.GetWorkerResponse:
        if request.worker_id == "bug":
            raise ZeroDivisionError("a secret detail")
        raise NotFound("no worker 'w'", field="worker_id")

    async def DrainWorker(
        self, request: registry_pb2.DrainWorkerRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[registry_pb2.DrainWorkerResponse]:
        yield registry_pb2.DrainWorkerResponse(drained=True)


class Inference(inference_pb2_grpc.InferenceServiceServicer):
    async def GetFleet(
        self, request: inference_pb2.GetFleetRequest, context: grpc.aio.ServicerContext
    ) -> inference_pb2.GetFleetResponse:
        return inference_pb2.GetFleetResponse(fleet=fleet_pb2.Fleet(router_id="r"))


@pytest.fixture
async def server() -> AsyncIterator[tuple[rpc.Server, grpc.aio.Channel]]:
    server = rpc.Server([rpc.ErrorStatuses(), rpc.AdminGate("token", [ADMIN])])
    registry_pb2_grpc.add_WorkerRegistryServiceServicer_to_server(Registry(), server.grpc)
    inference_pb2_grpc.add_InferenceServiceServicer_to_server(Inference(), server.grpc)
    server.offers(ADMIN, OPEN)
    port = await server.start("127.0.0.1:0")
    async with rpc.channel(f"127.0.0.1:{port}") as channel:
        yield server, channel
    await server.drain(0)


AUTH = (("authorization", "Bearer token"),)


async def test_admin_calls_need_the_token(server: tuple[rpc.Server, grpc.aio.Channel]) -> None:
    stub = registry_pb2_grpc.WorkerRegistryServiceStub(server[1])
    for metadata in ((), (("authorization", "Bearer wrong"),)):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.GetWorker(registry_pb2.GetWorkerRequest(worker_id="w"), metadata=metadata)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            async for _ in stub.DrainWorker(registry_pb2.DrainWorkerRequest(), metadata=metadata):
                pass
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    answers = [item async for item in stub.DrainWorker(registry_pb2.DrainWorkerRequest(), metadata=AUTH)]
    assert [answer.drained for answer in answers] == [True]


async def test_open_calls_need_none(server: tuple[rpc.Server, grpc.aio.Channel]) -> None:
    answer = await inference_pb2_grpc.InferenceServiceStub(server[1]).GetFleet(inference_pb2.GetFleetRequest())
    assert answer.fleet.router_id == "r"


async def test_an_error_carries_its_reason_and_field(server: tuple[rpc.Server, grpc.aio.Channel]) -> None:
    stub = registry_pb2_grpc.WorkerRegistryServiceStub(server[1])
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await stub.GetWorker(registry_pb2.GetWorkerRequest(worker_id="w"), metadata=AUTH)
    assert failed.value.code() is grpc.StatusCode.NOT_FOUND
    assert failed.value.details() == "no worker 'w'"
    assert rpc.reason_of(failed.value) == ("NOT_FOUND", "worker_id")


async def test_a_bug_is_hidden(server: tuple[rpc.Server, grpc.aio.Channel]) -> None:
    stub = registry_pb2_grpc.WorkerRegistryServiceStub(server[1])
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await stub.GetWorker(registry_pb2.GetWorkerRequest(worker_id="bug"), metadata=AUTH)
    assert failed.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in (failed.value.details() or "")


async def test_health_says_not_serving_from_the_drain_on(server: tuple[rpc.Server, grpc.aio.Channel]) -> None:
    stub = health_pb2_grpc.HealthStub(server[1])
    for name in ("", OPEN, ADMIN):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    await server[0].set_serving(False)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=OPEN))
    assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_a_taken_port_is_said_plainly(server: tuple[rpc.Server, grpc.aio.Channel]) -> None:
    first = rpc.Server()
    port = await first.start("127.0.0.1:0")
    with pytest.raises(OSError, match=r"cannot listen on .*in use"):
        await rpc.Server().start(f"127.0.0.1:{port}")
    await first.drain(0)


async def test_only_a_successor_shares_a_port() -> None:
    first, second = rpc.Server(can_share_port=True), rpc.Server(can_share_port=True)
    address = f"127.0.0.1:{await first.start('127.0.0.1:0')}"
    for mistaken in (rpc.Server(can_share_port=True), rpc.Server()):
        with pytest.raises(OSError, match=r"cannot listen on .*in use"):
            await mistaken.start(address)
    assert await second.start(address, beside=True) == int(address.rpartition(":")[2])
    await first.drain(0)
    async with rpc.channel(address) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    await second.drain(0)


async def test_both_ends_agree_on_pings() -> None:
    """A server that allows fewer pings than its clients send ends the connection of every quiet stream."""
    known = Path(grpc._cython.cygrpc.__file__).read_bytes()
    for name, _ in [*rpc.SERVER_OPTIONS, *rpc.CHANNEL_OPTIONS]:
        assert name.encode() in known, f"gRPC knows no option {name!r}"
    server, client = dict(rpc.SERVER_OPTIONS), dict(rpc.CHANNEL_OPTIONS)
    assert server["grpc.http2.min_ping_interval_without_data_ms"] < client["grpc.keepalive_time_ms"]
    # For a peer that stands still the core goes by the second of these, which is a minute by itself.
    assert client["grpc.keepalive_timeout_ms"] == client["grpc.http2.ping_timeout_ms"]


async def test_a_server_at_a_unix_socket_replaces_a_dead_one_and_no_living_one(tmp_path: Path) -> None:
    path = tmp_path / "service.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    first, second = rpc.Server(), rpc.Server()
    await first.start(f"unix:{path}")
    with pytest.raises(OSError, match="another process listens there"):
        await second.start(f"unix:{path}")
    async with rpc.channel(f"unix:{path}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        assert (await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)).status == 1
    await first.drain(0)
    await second.drain(0)
