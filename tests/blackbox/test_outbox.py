"""The outbox between processes that die, a billing that is silent and a disk that is full: each charge is there once, exactly.

A wire between edge and billing stops what is asked or what is answered, so that a process can be killed at a named point:
after the settlement was written down and before billing had it; after billing's commit and before its answer.
"""

import asyncio
import resource
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from services.common.money import parse_usd
from tests.blackbox.conftest import Customer, PreparedProduct, customer_of
from tests.harness.charges import charge_nanos
from tests.harness.edge_metrics import metric
from tests.harness.product import Product
from tests.harness.reservations import reservations
from tests.harness.sse import Stream, stream
from tests.harness.until import until
from tests.harness.upstream import MODEL, Script, Upstream
from tests.harness.wire import Wire

PATH = "/v1/chat/completions"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16, "stream": True}
SETTINGS = {"SPEEDINFER_EDGE__LIMITS__SETTLE_WAIT_S": "0.3", "SPEEDINFER_EDGE__LIMITS__BILLING_TIMEOUT_S": "1"}
CREDIT = "10"
SCRIPT = Script(prompt_tokens=1_234, completion_tokens=567, held_back=True)
CHARGE_NANOS = charge_nanos(SCRIPT.usage, "0.20", "0.60")


class WiredProduct(PreparedProduct):
    """Its edge, and nothing else, reaches billing over the wire."""

    wire: Wire

    def environment_of(self, name: str) -> Mapping[str, str]:
        over = {"SPEEDINFER_EDGE__BILLING_TARGET": self.wire.address} if name == "edge" else {}
        return {**self.environment, **over}


@pytest.fixture(scope="module")
def wired(tmp_path_factory: pytest.TempPathFactory, served_by: Upstream) -> Iterator[WiredProduct]:
    product = WiredProduct(tmp_path_factory.mktemp("wired"), served_by, SETTINGS)
    with Wire(product.address("billing")) as wire:
        product.wire = wire
        with product:
            yield product


@pytest.fixture
async def payer(wired: WiredProduct, upstream: Upstream) -> AsyncIterator[Customer]:
    """A customer whose worker answers when it is let."""
    upstream.plays(SCRIPT)
    async with customer_of(wired, await asyncio.to_thread(wired.account, CREDIT)) as customer:
        yield customer
    wired.wire.cut()


class Asked:
    """A stream that is at the worker; `ends` lets it go on, and reads it."""

    def __init__(self, customer: Customer, upstream: Upstream) -> None:
        self._upstream = upstream
        self._before = len(upstream.seen.bodies)
        self._reading = asyncio.create_task(self._read(customer))

    async def at_worker(self) -> "Asked":
        await asyncio.to_thread(until, lambda: len(self._upstream.seen.bodies) > self._before, "it is at the worker")
        return self

    def goes(self) -> None:
        self._upstream.go()

    async def ends(self) -> Stream | None:
        """What the client saw; None if it was cut off."""
        return await self._reading

    async def _read(self, customer: Customer) -> Stream | None:
        try:
            return await stream(customer.http, PATH, BODY)
        except httpx.HTTPError:
            return None


def pending(product: Product) -> float:
    return metric(product, "outbox_settlements")


def charges(customer: Customer) -> list[int]:
    """What was charged, in nano-USD."""
    entries = customer.product.entries(customer.account_id)
    return [-parse_usd(each["amount"]) for each in entries if each["kind"] in ("charge", "late_charge")]


def paid_once(customer: Customer, times: int = 1) -> None:
    """The outbox is empty, nothing is held, and the account paid for exactly so many answers."""
    until(lambda: pending(customer.product) == 0, "everything is delivered")
    account = customer.product.settled(customer.account_id)
    assert charges(customer) == [CHARGE_NANOS] * times
    assert parse_usd(account["balance"]) == parse_usd(CREDIT) - times * CHARGE_NANOS
    assert {each.state for each in reservations(customer.product, customer.account_id)} <= {"settled"}
    assert metric(customer.product, "settlements_quarantined_total") == 0
    customer.product.command("ledger", "verify")


def files(product: Product) -> list[Path]:
    return sorted((product.data_dir / "edge" / "outbox").glob("*.jsonl"))


async def test_an_edge_that_dies_between_writing_and_sending(
    wired: WiredProduct, payer: Customer, upstream: Upstream
) -> None:
    asked = await Asked(payer, upstream).at_worker()
    wired.wire.stop_asks()
    asked.goes()
    seen = await asked.ends()
    # The outbox's word is as good as billing's.
    assert seen is not None
    assert seen.done
    assert seen.usage is not None
    assert "cost" not in seen.usage
    assert charges(payer) == []
    await asyncio.to_thread(wired.kill, "edge")
    wired.wire.cut()
    await asyncio.to_thread(wired.start, "edge")
    await asyncio.to_thread(paid_once, payer)
    assert (metric(wired, "outbox_adopted_total"), metric(wired, "outbox_replays_total")) == (1, 1)
    assert len(files(wired)) == 1


async def test_an_edge_that_dies_between_billing_s_commit_and_its_own_mark(
    wired: WiredProduct, payer: Customer, upstream: Upstream
) -> None:
    asked = await Asked(payer, upstream).at_worker()
    wired.wire.stop_answers()
    asked.goes()
    await asyncio.to_thread(until, lambda: charges(payer), "billing has booked it")
    await asyncio.to_thread(wired.kill, "edge")
    await asked.ends()
    wired.wire.cut()
    await asyncio.to_thread(wired.start, "edge")
    # Sent a second time, booked once.
    await asyncio.to_thread(until, lambda: metric(wired, "outbox_replays_total"), "it was replayed")
    await asyncio.to_thread(paid_once, payer)


async def test_a_billing_that_dies_between_its_commit_and_its_answer(
    wired: WiredProduct, payer: Customer, upstream: Upstream
) -> None:
    asked = await Asked(payer, upstream).at_worker()
    wired.wire.stop_answers()
    asked.goes()
    await asyncio.to_thread(until, lambda: charges(payer), "billing has booked it")
    await asyncio.to_thread(wired.kill, "billing")
    seen = await asked.ends()
    assert seen is not None
    assert seen.done
    wired.wire.cut()
    await asyncio.to_thread(wired.start, "billing")
    await asyncio.to_thread(paid_once, payer)


async def test_without_billing_old_work_ends_well_and_new_work_is_turned_away(
    wired: WiredProduct, payer: Customer, upstream: Upstream
) -> None:
    asked = await Asked(payer, upstream).at_worker()
    await asyncio.to_thread(wired.kill, "billing")
    asked.goes()
    seen = await asked.ends()
    assert seen is not None
    assert seen.done
    assert await asyncio.to_thread(pending, wired) == 1
    assert await asyncio.to_thread(metric, wired, "outbox_oldest_seconds") > 0
    refused = await payer.http.post(PATH, json=BODY)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "billing_unavailable")
    assert int(refused.headers["retry-after"]) > 0
    assert len(upstream.seen.bodies) == 1
    await asyncio.to_thread(wired.start, "billing")
    await asyncio.to_thread(paid_once, payer)
    assert (await Asked(payer, upstream).ends()) is not None
    await asyncio.to_thread(paid_once, payer, 2)


async def test_a_full_disk_gives_no_false_word_and_new_work_is_turned_away_until_it_has_room(
    wired: WiredProduct, payer: Customer, upstream: Upstream
) -> None:
    asked, other = await Asked(payer, upstream).at_worker(), Asked(payer, upstream)
    await asyncio.to_thread(until, lambda: len(upstream.seen.bodies) == 2, "both are at the worker")
    wired.wire.stop_asks()
    # The kernel refuses to make any file larger than this, as it does on a disk without room.
    with limit_of_files(wired.pid("edge"), files(wired)[0].stat().st_size + 10):
        asked.goes()
        for each in (asked, other):
            seen = await each.ends()
            assert seen is not None
            assert not seen.done
            assert seen.error is not None
            assert seen.error["code"] == "billing_unavailable"
        wired.wire.cut()
        # Billing is back, and the disk is not.
        await asyncio.to_thread(paid_once, payer, 2)
        assert await asyncio.to_thread(metric, wired, "outbox_failures_total", operation="append") >= 2
    # Billing's answer is enough for work that is on its way; none is taken while the outbox is broken.
    await asyncio.to_thread(until, lambda: metric(wired, "outbox_sound") == 1, "the outbox is mended")
    assert (await Asked(payer, upstream).ends()) is not None
    await asyncio.to_thread(paid_once, payer, 3)


class limit_of_files:
    """`with limit_of_files(pid, size):` lets a process write no file beyond `size` bytes."""

    def __init__(self, pid: int, size_bytes: int) -> None:
        self._pid = pid
        self._size_bytes = size_bytes

    def __enter__(self) -> None:
        self._before = resource.prlimit(self._pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (self._size_bytes, self._before[1]))

    def __exit__(self, *_: object) -> None:
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, self._before)
