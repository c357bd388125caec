"""What an edge's calls come to at the real billing when they share messages: the same as one by one."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from speedinfer.billing.v1 import reservation_pb2 as pb
from speedinfer.billing.v1.access_pb2 import KeyStatus, PresentedKey
from speedinfer.common.v1.usage_pb2 import Usage

from services.billing.engine import Engine
from services.billing.operations.reserve import Reserve
from services.common.apikey import make_key
from services.common.money import from_money
from services.edge.billing_client import BillingClient, BillingUnavailable, NotSent
from tests.contract.billing.service import Client, Process, Service
from tests.harness.ports import free_port
from tests.unit.edge.conftest import eventually

USD = 1_000_000_000
CHARGE_NANOS = 10_000


@asynccontextmanager
async def stand(tmp_path: Path, **limits: Any) -> AsyncIterator[tuple[Service, BillingClient]]:
    """A billing with a price, and an edge's client of it."""
    service = Service(tmp_path, f"sqlite:///{tmp_path / 'billing.db'}", **limits)
    await service.start()
    await service.client.set_price()
    edge = BillingClient([service.client.target], 30)
    try:
        yield service, edge
    finally:
        await edge.close()
        await service.stop()


def charge_of(reservation_id: str) -> pb.SettleItem:
    return pb.SettleItem(
        reservation_id=reservation_id,
        usage=Usage(prompt_tokens=7, completion_tokens=3),
        worker_id="w-1",
        attempts=1,
        ending=pb.ENDING_COMPLETED,
    )


def is_held(result: pb.ReserveResult) -> bool:
    return result.reservation.state == pb.RESERVATION_STATE_HELD


def commits(service: Service) -> float:
    """Batches that billing wrote."""
    return service.billing.metrics.registry.get_sample_value("speedinfer_billing_batch_items_count") or 0


class Gate:
    """Billing's writer stands still while this is shut; what it has begun is on its way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open, self._reached = threading.Event(), threading.Event()
        process = Engine._process

        def held_up(engine: Engine, operations: Any) -> Any:
            self._reached.set()
            assert self._open.wait(20)
            return process(engine, operations)

        monkeypatch.setattr(Engine, "_process", held_up)

    async def reached(self) -> None:
        await eventually(self._reached.is_set)

    def open(self) -> None:
        self._open.set()


async def test_every_kind_shares_messages_and_is_judged_in_its_order(tmp_path: Path) -> None:
    async with stand(tmp_path) as (service, edge):
        client = service.client
        account = await client.open_account("10")
        _, made = make_key()
        await client.add_key(account, made)
        items = [client.reserve_item(made.key_id) for _ in range(40)]
        before = commits(service)
        results = await asyncio.gather(*(edge.reserve(item) for item in items))
        # Each hold is 1 USD; whoever asked first has one.
        assert [is_held(result) for result in results] == [True] * 10 + [False] * 30
        assert [result.reservation_id for result in results] == [item.reservation_id for item in items]
        settled = await asyncio.gather(*(edge.settle(charge_of(item.reservation_id), 30) for item in items[:6]))
        assert [from_money(result.reservation.charge) for result in settled] == [CHARGE_NANOS] * 6
        assert [result.reservation_id for result in settled] == [item.reservation_id for item in items[:6]]
        release = [pb.ReleaseItem(reservation_id=item.reservation_id, cause="upstream_error") for item in items[6:10]]
        released = await asyncio.gather(*(edge.release(item) for item in release))
        assert {result.status for result in released} == {pb.RELEASE_STATUS_RELEASED}
        assert commits(service) - before == 3
        assert await client.balance(account) == (10 * USD - 6 * CHARGE_NANOS, 0)
        good = PresentedKey(key_id=made.key_id, key_sha256=made.sha256)
        bad = PresentedKey(key_id="key_nobody", key_sha256=made.sha256)
        answers = await asyncio.gather(*(edge.authorize(key) for key in (good, bad, good)))
        assert [(each.key_id, each.status) for each in answers] == [
            (made.key_id, KeyStatus.KEY_STATUS_ACTIVE),
            ("key_nobody", KeyStatus.KEY_STATUS_UNKNOWN),
            (made.key_id, KeyStatus.KEY_STATUS_ACTIVE),
        ]


async def test_an_item_that_billing_fails_on_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stand(tmp_path) as (service, edge):
        client = service.client
        account = await client.open_account("100")
        key = await client.key(account)
        items = [client.reserve_item(key) for _ in range(3)]
        apply = Reserve.apply

        def apply_or_fail(operation: Reserve, books: Any) -> Any:
            if operation.item.reservation_id == items[0].reservation_id:
                raise ZeroDivisionError("a bug")
            return apply(operation, books)

        monkeypatch.setattr(Reserve, "apply", apply_or_fail)
        results = await asyncio.gather(*(edge.reserve(item) for item in items), return_exceptions=True)
        assert isinstance(results.pop(0), BillingUnavailable)
        assert all(isinstance(result, pb.ReserveResult) and is_held(result) for result in results)
        # What was sent again was not held twice.
        assert await client.balance(account) == (100 * USD, 2 * USD)


async def test_a_billing_that_takes_less_a_call_is_given_less(tmp_path: Path) -> None:
    async with stand(tmp_path, max_items_per_call=3) as (service, edge):
        key = await service.client.key(await service.client.open_account("100"))
        results = await asyncio.gather(*(edge.reserve(service.client.reserve_item(key)) for _ in range(10)))
        assert [is_held(result) for result in results] == [True] * 10


async def test_who_leaves_or_cannot_wait_takes_nobody_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stand(tmp_path) as (service, edge):
        client = service.client
        account = await client.open_account("100")
        key = await client.key(account)
        ids = [await client.hold(key) for _ in range(5)]
        gate = Gate(monkeypatch)
        stays, leaves = (asyncio.create_task(edge.settle(charge_of(each), 30)) for each in ids[:2])
        hurries = asyncio.create_task(edge.settle(charge_of(ids[2]), 0.2))
        await gate.reached()
        # These were too late for the message.
        late, late_and_gone = (asyncio.create_task(edge.settle(charge_of(each), 30)) for each in ids[3:])
        await eventually(lambda: len(edge._settles) == 2)
        leaves.cancel()
        late_and_gone.cancel()
        with pytest.raises(BillingUnavailable) as unanswered:
            await hurries
        assert not isinstance(unanswered.value, NotSent)
        gate.open()
        for task in (stays, late):
            assert (await task).status == pb.SETTLE_STATUS_SETTLED
        await asyncio.gather(leaves, late_and_gone, return_exceptions=True)
        states = [(await client.request(account, each)).state for each in ids]
        settled, held = pb.RESERVATION_STATE_SETTLED, pb.RESERVATION_STATE_HELD
        assert states == [settled, settled, settled, settled, held]
        # They may ask again.
        assert (await edge.settle(charge_of(ids[1]), 30)).status == pb.SETTLE_STATUS_SETTLED
        assert await client.balance(account) == (100 * USD - 4 * CHARGE_NANOS, USD)


async def test_a_full_queue_says_what_a_busy_billing_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stand(tmp_path) as (service, edge):
        client = service.client
        account = await client.open_account("100")
        key = await client.key(account)
        for batching in (edge._reserves, edge._settles, edge._releases, edge._authorisations):
            monkeypatch.setattr(batching, "_max_waiting", 0)
        item = client.reserve_item(key)
        refused = await edge.reserve(item)
        assert (refused.refusal.reason, refused.refusal.retry_after_ms) == (pb.REFUSAL_REASON_BUSY, 200)
        assert (await edge.settle(charge_of(item.reservation_id), 30)).status == pb.SETTLE_STATUS_BUSY
        release = pb.ReleaseItem(reservation_id=item.reservation_id, cause="upstream_error")
        assert (await edge.release(release)).status == pb.RELEASE_STATUS_BUSY
        with pytest.raises(NotSent):
            await edge.authorize(PresentedKey(key_id=key))
        assert await client.balance(account) == (100 * USD, 0)
        with pytest.raises(grpc.aio.AioRpcError):
            await client.request(account, item.reservation_id)


@pytest.mark.processes
async def test_kill_9_in_the_middle_charges_everybody_once(tmp_path: Path) -> None:
    # It comes back where it was.
    process = Process(tmp_path, f"sqlite:///{tmp_path / 'billing.db'}", f"127.0.0.1:{free_port()}")
    client: Client = await process.start()
    await client.set_price()
    account = await client.open_account("1000")
    key = await client.key(account)
    edge = BillingClient([client.target], 60)
    answered: list[str] = []

    async def caller() -> None:
        for _ in range(25):
            item = client.reserve_item(key, prompt=pb.PromptSize(text_bytes=100), output_limit=10)
            assert is_held(await edge.reserve(item))
            result = await edge.settle(charge_of(item.reservation_id), 60)
            assert result.status == pb.SETTLE_STATUS_SETTLED
            answered.append(item.reservation_id)

    async with asyncio.TaskGroup() as callers:
        for _ in range(16):
            callers.create_task(caller())
        for done in (60, 200):
            await eventually(lambda done=done: len(answered) >= done, 60)
            await process.kill()
            await client.channel.close()
            client = await process.start()
    assert len(set(answered)) == 400
    assert await client.balance(account) == (1000 * USD - 400 * CHARGE_NANOS, 0)
    verdict = await client.verify()
    assert (verdict.ok, list(verdict.problems)) == (True, [])
    await edge.close()
    await client.channel.close()
    assert await process.terminate() == 0
