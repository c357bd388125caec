"""SQLite on a disk that fails: nothing is acknowledged that is not on it, and billing recovers by itself."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from speedinfer.billing.v1 import reservation_pb2 as pb

from services.common.errors import ConfigurationError
from tests.contract.billing.service import Client, Service, status_of
from tests.ledger.disk import Disk

USD = 1_000_000_000


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    with disk.under_sqlite():
        yield disk


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the books are that lie on the disk."""
    (tmp_path / "books").mkdir()
    return tmp_path / "books"


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'billing.db'}"


@pytest.fixture
async def service(disk: Disk, folder: Path) -> AsyncIterator[Service]:
    service = Service(folder, url(folder))
    await service.start()
    yield service
    await service.stop()


async def refused(call: object) -> None:
    """Billing did not do it, and says that it may be tried again."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call  # type: ignore[misc]
    assert status_of(caught.value) == "UNAVAILABLE"


@asynccontextmanager
async def found_after_a_loss_of_power(disk: Disk, tmp_path: Path) -> AsyncIterator[Client]:
    """Billing on what the disk would hold."""
    there = tmp_path / "after"
    there.mkdir()
    disk.after_a_loss_of_power(there)
    service = Service(there, url(there))
    try:
        yield await service.start()
    finally:
        await service.stop()


@pytest.mark.parametrize("fault", ["full", "read_only", "fsync"])
async def test_a_failing_disk_acknowledges_nothing_and_billing_recovers(
    disk: Disk, service: Service, client: Client, tmp_path: Path, fault: str
) -> None:
    account = await client.open_account("10")
    key = await client.key(account)
    held, given_back, charged = [await client.hold(key) for _ in range(3)]
    item = client.reserve_item(key)
    disk.fails = fault
    for _ in range(2):
        await refused(client.reserve(item))
        await refused(client.settle(charged, 7, 3))
        await refused(client.release(given_back))
        await refused(client.credit(account, "1"))
        # Reading goes on, and shows nothing of it.
        assert await client.balance(account) == (10 * USD, 3 * USD)
    assert disk.failures > 0
    disk.fails = ""
    # Nobody has to do anything: the next call is done, and each of them once.
    assert (await client.settle(charged, 7, 3)).status == pb.SETTLE_STATUS_SETTLED
    assert (await client.reserve(item)).reservation.state == pb.RESERVATION_STATE_HELD
    assert await client.release(given_back) == "RELEASED"
    assert await client.renew(held) == ("RENEWED", 60_000)
    assert await client.balance(account) == (10 * USD - 10_000, 2 * USD)
    assert (await client.verify()).ok
    # What was acknowledged since is on the disk.
    async with found_after_a_loss_of_power(disk, tmp_path) as again:
        assert await again.balance(account) == (10 * USD - 10_000, 2 * USD)
        assert (await again.verify()).ok


async def test_acknowledged_is_on_disk_when_the_power_goes(
    disk: Disk, service: Service, client: Client, tmp_path: Path
) -> None:
    account = await client.open_account("100")
    key = await client.key(account)
    at_first = disk.syncs["billing.db"]
    for _ in range(40):
        answers = await asyncio.gather(*(client.reserve(client.reserve_item(key, output_limit=1)) for _ in range(4)))
        for answer in answers:
            assert (await client.settle(answer.reservation_id, 7, 3)).status == pb.SETTLE_STATUS_SETTLED
    # Meanwhile the log was moved into the database.
    assert disk.syncs["billing.db"] > at_first
    async with found_after_a_loss_of_power(disk, tmp_path) as again:
        assert await again.balance(account) == (100 * USD - 160 * 10_000, 0)
        assert (await again.verify()).ok


async def test_what_a_start_finds_in_the_log_is_on_disk_before_it_is_answered(
    disk: Disk, service: Service, client: Client, tmp_path: Path
) -> None:
    account = await client.open_account("10")
    key = await client.key(account)
    item = client.reserve_item(key)
    # The hold reaches the log and no fsync confirms it, as when billing dies between the two; a start finds it there.
    disk.fails = "fsync"
    await refused(client.reserve(item))
    await service.stop()
    disk.fails = ""
    client = await service.start()
    assert (await client.reserve(item)).reservation.state == pb.RESERVATION_STATE_HELD
    async with found_after_a_loss_of_power(disk, tmp_path) as again:
        assert await again.balance(account) == (10 * USD, USD)
        kept = await again.request(account, item.reservation_id)
        assert kept.state == pb.RESERVATION_STATE_HELD


@pytest.mark.parametrize("fault", ["full", "fsync"])
async def test_a_start_on_a_failing_disk_shows_what_it_has_and_recovers(
    disk: Disk, service: Service, client: Client, fault: str
) -> None:
    account = await client.open_account("10")
    key = await client.key(account)
    item = client.reserve_item(key)
    await client.reserve(item)
    disk.fails = fault
    await service.stop()
    client = await service.start()
    assert await client.balance(account) == (10 * USD, USD)
    # Not even a repeated call is answered from what may not be on disk.
    await refused(client.reserve(item))
    disk.fails = ""
    assert (await client.reserve(item)).reservation.state == pb.RESERVATION_STATE_HELD
    assert (await client.settle(item.reservation_id, 7, 3)).status == pb.SETTLE_STATUS_SETTLED
    assert (await client.verify()).ok


async def test_a_start_on_a_read_only_disk_says_so(disk: Disk, service: Service, client: Client) -> None:
    account = await client.open_account("10")
    await service.stop()
    disk.fails = "read_only"
    with pytest.raises(ConfigurationError, match=r"billing\.db cannot be used"):
        await service.start()
    disk.fails = ""
    client = await service.start()
    assert await client.balance(account) == (10 * USD, 0)
