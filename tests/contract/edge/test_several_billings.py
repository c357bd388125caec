"""An edge's client before two real billing processes on one PostgreSQL: one is killed, one stands still, one comes back."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from speedinfer.billing.v1 import reservation_pb2 as pb

from services.edge.billing_client import BillingClient, BillingUnavailable
from tests.contract.billing.postgresql import Server, running
from tests.contract.billing.service import Client, Process
from tests.contract.edge.test_batched_billing import CHARGE_NANOS, USD, charge_of, is_held
from tests.harness.ports import free_port
from tests.unit.edge.conftest import eventually

pytestmark = [pytest.mark.processes, pytest.mark.real]
CALLERS = 50
# What a settlement waits at an edge, with the time that a busy machine takes.
WAIT_S = 10.0


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Server]:
    with running() as server:
        yield server


@dataclass
class Crowd:
    """Callers that hold and settle, one after another, until they are told to end; each holds what it says it holds."""

    client: Client
    edge: BillingClient
    key: str
    settled: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    ends: bool = False

    async def call(self) -> None:
        while not self.ends:
            item = self.client.reserve_item(self.key, prompt=pb.PromptSize(text_bytes=100), output_limit=10)
            try:
                assert is_held(await self.edge.reserve(item))
                result = await self.edge.settle(charge_of(item.reservation_id), WAIT_S)
                assert result.status == pb.SETTLE_STATUS_SETTLED
                self.settled.append(item.reservation_id)
            except BillingUnavailable:
                self.failed.append(item.reservation_id)

    async def goes_on(self) -> None:
        """Until every caller may have had its turn."""
        seen = len(self.settled)
        await eventually(lambda: len(self.settled) >= seen + 3 * CALLERS, 30)


@pytest.fixture
async def processes(postgresql: Server, tmp_path: Path) -> AsyncIterator[list[Process]]:
    postgresql.empty()
    processes = [Process(tmp_path, postgresql.url, f"127.0.0.1:{free_port()}") for _ in range(2)]
    yield processes
    for process in processes:
        await process.kill()


async def test_kill_9_standstill_and_return_of_one_of_two_lose_and_double_nothing(processes: list[Process]) -> None:
    clients = [await process.start() for process in processes]
    await clients[1].set_price()
    account = await clients[1].open_account("1000")
    key = await clients[1].key(account)
    edge = BillingClient([client.target for client in clients], WAIT_S)
    crowd = Crowd(clients[1], edge, key)
    billings = list(edge._pool._billings.values())
    async with asyncio.TaskGroup() as callers:
        for _ in range(CALLERS):
            callers.create_task(crowd.call())
        await crowd.goes_on()
        await processes[0].kill()
        await crowd.goes_on()
        assert [each.fit for each in billings] == [False, True]
        await clients[0].channel.close()
        clients[0] = await processes[0].start()
        await eventually(lambda: billings[0].fit)
        await crowd.goes_on()
        # It may have accounts locked; it keeps them for a second.
        processes[0].process.send_signal(signal.SIGSTOP)
        await eventually(lambda: not billings[0].fit, 30)
        await crowd.goes_on()
        processes[0].process.send_signal(signal.SIGCONT)
        await eventually(lambda: billings[0].fit, 30)
        await crowd.goes_on()
        crowd.ends = True
    assert crowd.failed == []
    assert len(set(crowd.settled)) == len(crowd.settled)
    assert await clients[1].balance(account) == (1000 * USD - len(crowd.settled) * CHARGE_NANOS, 0)
    verdict = await clients[1].verify()
    assert (verdict.ok, list(verdict.problems)) == (True, [])
    await edge.close()
    for client in clients:
        with suppress(Exception):
            await client.channel.close()
