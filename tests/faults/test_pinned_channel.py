"""gRPC connects to the addresses that were judged, and to no others, whatever its name leads to later."""

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from services.router.networks import Networks
from services.router.transport import pinned_channel
from services.router.transport.guarded_resolver import NotAllowed
from services.router.transport.pinned_channel import PinnedChannel, target_of
from services.router.transport.triton_grpc import TritonGrpc
from tests.fakes.triton_grpc import TLS, FakeTritonGrpc
from tests.harness import zone
from tests.harness.listener import Listener
from tests.harness.ports import free_port

_pb: Any = service_pb2
ALLOWED = Networks([ip_network("127.0.0.1/32"), ip_network("127.0.0.3/32")])
CONNECT_S = 5.0


@pytest.fixture(autouse=True)
def always_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are asked for each time that a channel is not connected."""
    monkeypatch.setattr(pinned_channel, "RESOLVED_FOR_S", 0)


@pytest.fixture
def leads_to() -> Iterator[list[str]]:
    """Where worker.test leads."""
    addresses = ["127.0.0.1"]
    with zone.serves({"worker.test": lambda: list(addresses)}):
        yield addresses


def channel_to(
    port: int, credentials: grpc.ChannelCredentials | None = None, name: str = "worker.test"
) -> PinnedChannel:
    options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.use_local_subchannel_pool", 1)]
    return PinnedChannel(f"{name}:{port}", credentials=credentials, options=options, networks=ALLOWED)


async def live(channel: PinnedChannel, *, wait: bool = True) -> None:
    async with channel.for_call(CONNECT_S) as connection:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(connection)
        await stub.ServerLive(_pb.ServerLiveRequest(), timeout=CONNECT_S, wait_for_ready=wait)


@pytest.mark.parametrize(
    ("addresses", "target"),
    [
        (["10.0.0.1"], "ipv4:10.0.0.1:8001"),
        (["10.0.0.1", "10.0.0.2"], "ipv4:10.0.0.1:8001,10.0.0.2:8001"),
        (["fd00::1"], "ipv6:[fd00::1]:8001"),
        (["10.0.0.1", "fd00::1"], "ipv6:[::ffff:10.0.0.1]:8001,[fd00::1]:8001"),
    ],
)
def test_addresses_as_grpc_takes_them(addresses: list[str], target: str) -> None:
    assert target_of(addresses, 8001) == target


async def test_a_name_that_only_our_resolver_knows_is_reached(leads_to: list[str]) -> None:
    async with FakeTritonGrpc() as server:
        channel = channel_to(server.port)
        # Both families at once, and one of them refused.
        leads_to[:] = ["::1", "127.0.0.1"]
        await live(channel)
        assert server.calls == 1
        await channel.close()


async def test_allowed_addresses_of_both_families_are_tried_in_turn(leads_to: list[str]) -> None:
    async with FakeTritonGrpc() as server:
        networks = Networks([ip_network("127.0.0.1/32"), ip_network("::1/128")])
        leads_to[:] = ["::1", "127.0.0.1"]
        channel = PinnedChannel(f"worker.test:{server.port}", credentials=None, options=[], networks=networks)
        await live(channel)
        await channel.close()
    assert server.calls == 1


async def test_a_name_that_moves_where_no_worker_may_be_is_not_followed(leads_to: list[str]) -> None:
    async with Listener("127.0.0.2") as forbidden, FakeTritonGrpc("127.0.0.1", free_port()) as server:
        channel = channel_to(forbidden.port)
        other = channel_to(server.port)
        await live(other)
        leads_to[:] = ["127.0.0.2"]
        # Connected: it stays with what was judged.
        await live(other)
        with pytest.raises(NotAllowed, match=r"it is 127\.0\.0\.2, which is in none of router\.allowed_networks"):
            await live(channel)
        assert forbidden.came == []
        await channel.close()
        await other.close()


async def test_a_name_that_moves_to_another_allowed_address_is_followed_and_cuts_nobody(leads_to: list[str]) -> None:
    port = free_port()
    async with FakeTritonGrpc("127.0.0.1", port) as old, FakeTritonGrpc("127.0.0.3", port) as new:
        channel = channel_to(port)
        async with channel.for_call(CONNECT_S) as connection:
            call = service_pb2_grpc.GRPCInferenceServiceStub(connection).ModelStreamInfer()
            await call.write(_pb.ModelInferRequest())
            assert (await call.read()).infer_response.id == "first"
            leads_to[:] = ["127.0.0.3"]
            # What a broken connection does: the next call looks anew.
            channel._current.channel.get_state = lambda: grpc.ChannelConnectivity.IDLE  # type: ignore[union-attr]
            await live(channel)
            assert (old.calls, new.calls) == (0, 1)
            old.go.set()
            assert (await call.read()).infer_response.id == "last"
        assert channel._replaced == set()
        await channel.close()


@pytest.mark.parametrize("name", ["127.0.0.2", "169.254.169.254", "[::1]", "[::ffff:127.0.0.2]"])
async def test_addresses_are_judged_too(name: str) -> None:
    channel = channel_to(1, name=name)
    with pytest.raises(NotAllowed, match="no worker may be there"):
        await live(channel)
    await channel.close()


async def test_under_tls_the_certificate_must_have_the_name_that_was_registered(leads_to: list[str]) -> None:
    credentials = grpc.ssl_channel_credentials((TLS / "worker.test.crt").read_bytes())
    async with FakeTritonGrpc(tls=True) as server:
        channel = channel_to(server.port, credentials)
        await live(channel)
        await channel.close()
        with zone.serves({"other.test": leads_to}):
            impostor = channel_to(server.port, credentials, "other.test")
            with pytest.raises(grpc.aio.AioRpcError):
                await live(impostor, wait=False)
            await impostor.close()
    assert server.calls == 1


async def test_what_is_wrong_with_the_name_is_said(leads_to: list[str]) -> None:
    leads_to[:] = ["127.0.0.2"]
    server = TritonGrpc(
        "worker.test:8001", secure=False, headers=[], connect_timeout_s=1.0, max_answer_bytes=1000, networks=ALLOWED
    )
    assert "no worker may be at worker.test: it is 127.0.0.2" in await server.answers(1.0)
    leads_to.clear()
    assert await server.answers(1.0) == "the name is not known"
    await server.close()
