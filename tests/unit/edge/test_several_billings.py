"""Several billings behind one edge: calls are spread, and go on with the same ids where one fails or is silent."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from speedinfer.billing.v1 import reservation_pb2 as pb
from speedinfer.billing.v1.access_pb2 import GetAccountUsageRequest, KeyStatus, PresentedKey

from services.common.settings import EdgeSettings, Settings
from services.edge import addresses, known_billing
from services.edge.app import Edge
from services.edge.billing_client import BillingClient, BillingUnavailable
from services.edge.known_billing import KnownBilling
from services.edge.metrics import Metrics
from tests.fakes.scripted_billing import ACCOUNT, KEY_STORED, ScriptedBilling
from tests.harness.ports import free_port
from tests.unit.edge.conftest import ADMIN_TOKEN, eventually

Clients = Callable[..., Awaitable[BillingClient]]
GOOD_KEY = PresentedKey(key_id=KEY_STORED.key_id, key_sha256=KEY_STORED.sha256)


@pytest.fixture
async def two() -> AsyncIterator[tuple[ScriptedBilling, ScriptedBilling]]:
    billings = ScriptedBilling(), ScriptedBilling()
    for billing in billings:
        await billing.start()
    yield billings
    for billing in billings:
        for gate in (billing.reserves, billing.settles, billing.authorises):
            gate.set()
        await billing.stop()


@pytest.fixture
async def client(two: tuple[ScriptedBilling, ScriptedBilling]) -> AsyncIterator[BillingClient]:
    client = BillingClient([f"127.0.0.1:{each.port}" for each in two], 5.0, Metrics())
    yield client
    await client.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_billing, "PATIENCE_S", 0.03)
    monkeypatch.setattr(known_billing, "ASK_EVERY_S", 0.01)


def known(client: BillingClient) -> list[KnownBilling]:
    return list(client._pool._billings.values())


def moves(client: BillingClient, why: str) -> float:
    return client._pool._metrics.registry.get_sample_value("speedinfer_edge_billing_moves_total", {"why": why}) or 0


def hold(name: str) -> pb.ReserveItem:
    return pb.ReserveItem(reservation_id=name)


async def test_calls_are_spread_in_turn(two: tuple[ScriptedBilling, ScriptedBilling], client: BillingClient) -> None:
    for number in range(6):
        await client.reserve(hold(f"r{number}"))
    assert [len(each.holds) for each in two] == [3, 3]


async def test_who_has_fewer_calls_open_gets_the_next(
    two: tuple[ScriptedBilling, ScriptedBilling], client: BillingClient
) -> None:
    first, second = two
    first.reserves.clear()
    waits = asyncio.create_task(client.reserve(hold("waits")))
    await eventually(lambda: known(client)[0].open == 1)
    for number in range(3):
        await client.release(pb.ReleaseItem(reservation_id=f"r{number}", cause="upstream_error"))
    assert (first.names(), second.names()) == ([], ["release"] * 3)
    first.reserves.set()
    assert (await waits).reservation.reservation_id == "waits"


async def test_every_kind_of_call_goes_on_where_one_is_gone(
    two: tuple[ScriptedBilling, ScriptedBilling], client: BillingClient
) -> None:
    first, second = two
    await client.reserve(hold("r0"))
    await first.stop()
    for number in range(1, 5):
        known(client)[0].fit = True
        assert (await client.reserve(hold(f"r{number}"))).HasField("reservation")
    known(client)[0].fit = True
    assert (await client.authorize(GOOD_KEY)).status == KeyStatus.KEY_STATUS_ACTIVE
    settled, released = pb.SETTLE_STATUS_SETTLED, pb.RELEASE_STATUS_RELEASED
    charge = pb.SettleItem(reservation_id="r1")
    for _ in range(2):
        known(client)[0].fit = True
        assert (await client.settle(charge, 5)).status == settled
        known(client)[0].fit = True
        assert [each.status for each in await client.settle_again([charge], 5)] == [settled]
        known(client)[0].fit = True
        assert (await client.release(pb.ReleaseItem(reservation_id="r2", cause="x"))).status == released
        known(client)[0].fit = True
        assert [each.status for each in await client.renew(["r3"])] == [pb.RENEW_STATUS_RENEWED]
        known(client)[0].fit = True
        assert (await client.account_usage(GetAccountUsageRequest(account_id=ACCOUNT))).models
        known(client)[0].fit = True
        assert await client.request(ACCOUNT, "r4") is not None
    assert moves(client, "failed") > 0
    assert set(second.holds) >= {"r1", "r2", "r3", "r4"}


@pytest.mark.usefixtures("impatient")
async def test_one_that_is_silent_is_left_with_the_same_ids(
    two: tuple[ScriptedBilling, ScriptedBilling], client: BillingClient
) -> None:
    first, second = two
    first.reserves.clear()
    items = [hold(f"r{number}") for number in range(5)]
    answers = await asyncio.gather(*(client.reserve(item) for item in items))
    assert [each.reservation.reservation_id for each in answers] == [each.reservation_id for each in items]
    assert [name for _, name in second.calls] == [each.reservation_id for each in items]
    assert (moves(client, "silent"), first.holds) == (1, {})


@pytest.mark.usefixtures("impatient")
async def test_the_only_one_that_is_there_is_not_given_up(
    two: tuple[ScriptedBilling, ScriptedBilling], client: BillingClient
) -> None:
    first, second = two
    await second.stop()
    known(client)[1].fit = False
    first.reserves.clear()
    waits = asyncio.create_task(client.reserve(hold("r0")))
    patience = known_billing._Patience
    looks = 0
    look = patience._look

    def counted(each: Any) -> None:
        nonlocal looks
        looks += 1
        look(each)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(patience, "_look", counted)
        # The first look was made before; these are the later ones.
        await eventually(lambda: looks >= 3)
    first.reserves.set()
    assert (await waits).HasField("reservation")
    assert moves(client, "silent") == 0


@pytest.mark.usefixtures("impatient")
async def test_who_leaves_while_one_is_silent_is_let_go(
    two: tuple[ScriptedBilling, ScriptedBilling], client: BillingClient
) -> None:
    two[0].reserves.clear()
    task = asyncio.create_task(client._pool.ask(lambda each: each.reservations.Reserve, pb.ReserveRequest(), 5.0))
    await eventually(lambda: known(client)[0].open == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(each.fit, each.open) for each in known(client)] == [(True, 0), (True, 0)]


async def test_one_on_probation_gets_nothing_until_it_says_that_it_serves(
    two: tuple[ScriptedBilling, ScriptedBilling], client: BillingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_billing, "ASK_EVERY_S", 0.01)
    first, second = two
    port = first.port
    await first.stop()
    for number in range(4):
        await client.reserve(hold(f"r{number}"))
    assert ([each.fit for each in known(client)], moves(client, "failed")) == ([False, True], 1)
    back = ScriptedBilling()
    # Something answers there, but it does not serve.
    await back.start(port)
    assert back._server is not None
    await back._server.set_serving(False)
    asked = 0
    ask = known_billing.health_check.ask

    async def counted(*arguments: Any) -> Any:
        nonlocal asked
        found = await ask(*arguments)
        asked += found is known_billing.Health.LEAVING
        return found

    monkeypatch.setattr(known_billing.health_check, "ask", counted)
    await eventually(lambda: asked >= 3)
    await client.reserve(hold("r4"))
    assert (known(client)[0].fit, back.calls) == (False, [])
    await back._server.set_serving(True)
    await eventually(lambda: known(client)[0].fit)
    for number in range(5, 9):
        await client.reserve(hold(f"r{number}"))
    assert (len(back.holds), len(second.holds)) == (2, 7)
    await back.stop()


async def test_where_none_is_fit_somebody_is_asked_and_found(client: BillingClient) -> None:
    for each in known(client):
        each.fit = False
    assert (await client.reserve(hold("r0"))).HasField("reservation")


async def test_where_none_is_there_the_outcome_is_unknown() -> None:
    client = BillingClient([f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"], 0.2)
    with pytest.raises(BillingUnavailable):
        await client.renew(["r0"])
    await client.close()


async def test_an_error_that_is_an_answer_goes_nowhere_else(
    two: tuple[ScriptedBilling, ScriptedBilling], client: BillingClient
) -> None:
    for each in two:
        each.renew_fault = lambda _ids: grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.aio.AioRpcError):
        await client.renew(["r0"])
    assert [len(each.calls) for each in two] == [1, 0]
    assert all(each.fit for each in known(client))


async def test_each_address_of_a_name_is_a_billing_and_one_that_left_it_is_let_go(
    two: tuple[ScriptedBilling, ScriptedBilling], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = ScriptedBilling()
    await other.start(two[0].port, "127.0.0.2")
    hosts = ["127.0.0.1", "127.0.0.2"]
    ask = socket.getaddrinfo

    def look_up(host: Any, port: Any, *others: Any, **named: Any) -> Any:
        if host != "billings.test":
            return ask(host, port, *others, **named)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in hosts]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(addresses, "LOOK_UP_EVERY_S", 0.02)
    section = EdgeSettings(
        listen="127.0.0.1:0",
        admin_listen="127.0.0.1:0",
        router_target="127.0.0.1:1",
        billing_target=f"billings.test:{other.port}, 127.0.0.1:{two[1].port}",
    )
    edge = Edge(Settings(data_dir=tmp_path, edge=section), ADMIN_TOKEN)
    await edge.start()
    try:
        found = [f"127.0.0.1:{other.port}", f"127.0.0.2:{other.port}", f"127.0.0.1:{two[1].port}"]
        assert [each.address for each in known(edge._billing)] == found
        for number in range(6):
            await edge._billing.reserve(hold(f"r{number}"))
        assert [len(each.holds) for each in (*two, other)] == [2, 2, 2]
        hosts.remove("127.0.0.2")
        await eventually(lambda: len(known(edge._billing)) == 2 and not edge._billing._pool._retired)
        for number in range(6, 10):
            await edge._billing.reserve(hold(f"r{number}"))
        assert [len(each.holds) for each in (*two, other)] == [4, 4, 2]
    finally:
        await edge.drain()
        await other.stop()
