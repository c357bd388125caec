"""Seals where several billing processes write one database: one of them makes them, and none misses what is committed late."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import grpc
import pytest

from tests.contract.billing import sealed_ledger
from tests.contract.billing.postgresql import Server
from tests.contract.billing.service import Client, status_of
from tests.contract.billing.test_several import Two, two

__all__ = ["two"]

pytestmark = [pytest.mark.processes, pytest.mark.real]
NUMBERS = "hashtextextended(quote_ident(current_schema()) || ' numbers', 0)"


async def refusal(client: Client) -> str:
    """Why a seal is not made."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await sealed_ledger.seal(client)
    assert status_of(caught.value) == "UNAVAILABLE"
    return str(caught.value.details())


def sweeping(two: Two) -> list[float | None]:
    """What each process's metric says."""
    registries = [service.billing.metrics.registry for service in two.services]
    return [registry.get_sample_value("speedinfer_billing_sweeps") for registry in registries]


@contextmanager
def holding(server: Server, lock: str) -> Iterator[Any]:
    """Somebody who has the lock of numbers, as whoever draws them (shared) or as whoever seals."""
    with closing(server.connect()) as other:
        other.execute("BEGIN")
        other.execute(f"SELECT {lock}({NUMBERS})")
        yield other
        other.execute("ROLLBACK")


async def test_the_one_that_sweeps_seals_and_its_successor_goes_on(two: Two) -> None:
    one, other = two.clients
    account = await other.open_account("10")
    # Told what to do: whom to ask, and how that one is known.
    said = await refusal(other)
    assert "another billing process" in said
    assert "speedinfer_billing_sweeps is 1" in said
    assert sweeping(two) == [1, 0]
    assert await sealed_ledger.seal(one) == [1]
    await other.credit(account, "1")
    await two.services[0].stop()
    await two.pass_time(10, sweeping=[1])
    assert await sealed_ledger.seal(other) == [2]
    verdict = await other.verify()
    assert (verdict.ok, verdict.seals) == (True, 2)
    await two.services[0].start()
    assert sweeping(two) == [0, 1]
    assert "another billing process" in await refusal(two.clients[0])


async def test_a_seal_waits_for_numbers_that_are_drawn_and_not_yet_committed(two: Two, postgresql: Server) -> None:
    one, other = two.clients
    account = await one.open_account("10")
    with holding(postgresql, "pg_advisory_xact_lock_shared"):
        # Others draw theirs meanwhile.
        await other.credit(account, "1")
        assert "busy" in await refusal(one)
    assert await sealed_ledger.seal(one) == [1]
    assert [head.entries for statement in await sealed_ledger.statements(one) for head in statement.heads] == [2]


@pytest.mark.parametrize("what", ["credit", "price"])
async def test_nobody_draws_numbers_while_a_seal_is_begun(two: Two, postgresql: Server, what: str) -> None:
    one, other = two.clients
    account = await one.open_account("10")
    with holding(postgresql, "pg_advisory_xact_lock"):
        writing = asyncio.create_task(other.credit(account, "1") if what == "credit" else other.set_price("3", "3"))
        await asyncio.to_thread(postgresql.wait_for_waiting, "advisory")
        assert not writing.done()
    await writing
    assert await sealed_ledger.seal(one) == [1]
    assert (await one.verify()).ok
