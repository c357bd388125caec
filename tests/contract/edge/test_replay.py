"""What an edge left in its outbox, replayed to the real billing: charged once, or kept for a person."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from speedinfer.billing.v1.reservation_pb2 import Ending, ReservationState

from services.common.settings import EdgeLimits, EdgeSettings, Settings
from services.edge.app import Edge
from services.edge.outbox import Outbox
from services.edge.settlement import Settlement
from tests.contract.billing.service import Client, Service
from tests.unit.edge.conftest import eventually

# At 1 USD per million tokens of either kind.
CHARGE_NANOS = 17_000
USD_NANOS = 1_000_000_000


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    service = Service(tmp_path, f"sqlite:///{tmp_path / 'billing.db'}")
    await service.start()
    await service.client.set_price()
    yield service
    await service.stop()


def left(reservation_id: str, worker_id: str = "w") -> Settlement:
    return Settlement(reservation_id, 12, 5, None, worker_id, 1, int(Ending.ENDING_COMPLETED))


def leave(data_dir: Path, *entries: Settlement) -> None:
    """As a killed edge does."""
    folder = data_dir / "edge" / "outbox"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dead.jsonl").write_bytes(b"".join(entry.line() for entry in entries))


async def replay(data_dir: Path, client: Client) -> Edge:
    """An edge that starts, delivers everything and ends."""
    section = EdgeSettings(
        listen="127.0.0.1:0",
        admin_listen="127.0.0.1:0",
        router_target="127.0.0.1:1",
        billing_target=client.target,
        limits=EdgeLimits(drain_s=0.1),
    )
    edge = Edge(Settings(data_dir=data_dir, edge=section), "token")
    await edge.start()
    await eventually(lambda: len(edge._outbox) == 0)
    await edge.drain()
    assert list((data_dir / "edge" / "outbox").glob("*.jsonl")) == []
    return edge


async def test_a_replay_is_charged_once_however_often_it_comes(service: Service, tmp_path: Path) -> None:
    client = service.client
    account_id = await client.open_account("3")
    hold = await client.hold(await client.key(account_id))
    for _ in range(2):
        # A done line that a crash has lost costs a second sending, and nothing else.
        leave(tmp_path, left(hold))
        edge = await replay(tmp_path, client)
        assert edge.metrics.registry.get_sample_value("speedinfer_edge_outbox_adopted_total") == 1
    assert await client.balance(account_id) == (3 * USD_NANOS - CHARGE_NANOS, 0)
    assert (await client.verify()).problems == []


async def test_a_replay_after_the_hold_lapsed_is_a_late_charge(service: Service, tmp_path: Path) -> None:
    client = service.client
    account_id = await client.open_account("3")
    hold = await client.hold(await client.key(account_id))
    assert await service.pass_time(61) == 1
    leave(tmp_path, left(hold))
    await replay(tmp_path, client)
    assert (await client.request(account_id, hold)).state == ReservationState.RESERVATION_STATE_LATE
    assert await client.balance(account_id) == (3 * USD_NANOS - CHARGE_NANOS, 0)


async def test_what_billing_will_never_book_is_kept_for_a_person_and_blocks_nothing(
    service: Service, tmp_path: Path
) -> None:
    client = service.client
    account_id = await client.open_account("3")
    key_id = await client.key(account_id)
    good, released, unknown = await client.hold(key_id), await client.hold(key_id), client.new_id()
    await client.release(released)
    leave(tmp_path, left(unknown), left("no id"), left(released), left(good))
    await replay(tmp_path, client)
    kept = [json.loads(line) for line in (tmp_path / "edge" / "quarantine.jsonl").read_bytes().splitlines()]
    words = {each["settle"]["reservation_id"]: each["why"] for each in kept}
    assert words == {unknown: "unknown", "no id": "invalid", released: "conflict"}
    assert await client.balance(account_id) == (3 * USD_NANOS - CHARGE_NANOS, 0)


async def test_two_edges_on_one_folder_deliver_each_their_own(service: Service, tmp_path: Path) -> None:
    client = service.client
    account_id = await client.open_account("3")
    key_id = await client.key(account_id)
    theirs, ours = await client.hold(key_id), await client.hold(key_id)
    living = Outbox(tmp_path / "edge" / "outbox", 10**6)
    living.open()
    living.append(left(theirs))
    leave(tmp_path, left(ours))
    section = EdgeSettings(
        listen="127.0.0.1:0", admin_listen="127.0.0.1:0", router_target="127.0.0.1:1", billing_target=client.target
    )
    edge = Edge(Settings(data_dir=tmp_path, edge=section), "token")
    await edge.start()
    await eventually(lambda: len(edge._outbox) == 0)
    assert (await client.request(account_id, ours)).state == ReservationState.RESERVATION_STATE_SETTLED
    assert (await client.request(account_id, theirs)).state == ReservationState.RESERVATION_STATE_HELD
    # It dies, and the one that lives takes over what it left.
    await living.close()
    assert list(edge._outbox.adopt()) == [1]
    edge._settler.wake.set()
    await eventually(lambda: len(edge._outbox) == 0)
    await edge.drain()
    assert await client.balance(account_id) == (3 * USD_NANOS - 2 * CHARGE_NANOS, 0)
