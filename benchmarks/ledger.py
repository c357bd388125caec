"""How many durable reserve-and-settle cycles a second billing does, through gRPC, for callers behind one batching client.

    .venv/bin/python benchmarks/ledger.py                                  SQLite: one hot account, then 1,000 accounts
    .venv/bin/python benchmarks/ledger.py --database postgresql://...      the same on an empty PostgreSQL database
    .venv/bin/python benchmarks/ledger.py --growth 100000 --entries 1000000 --plot benchmarks/growth.svg

Billing is a process of its own. 256 callers each reserve, settle and start again; the client has one Reserve and one Settle
message on their way at a time, each with all that waited (at most 256 items), as an edge that batches would have. Then one
caller alone. Every cycle is on disk before it counts. With --growth, the time that billing's processor spends on a cycle is
measured while accounts and entries become many.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

if not __package__:  # run as a script: our folder is on the path, its parent is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import psutil
import uvloop
from speedinfer.billing.v1 import account_pb2, key_pb2
from speedinfer.billing.v1 import reservation_pb2 as pb
from speedinfer.common.v1 import operation_pb2, usage_pb2

from benchmarks.plot import Series, write_svg
from services.common.apikey import make_key
from services.common.ids import uuid7
from services.common.money import parse_usd, to_money
from tests.contract.billing.service import ADMIN, MODEL, Client, Process

CALLERS, MAX_ITEMS = 256, 256
SETUP_ITEMS = 250
RESERVE: dict[str, Any] = {
    "model": MODEL,
    "operation": operation_pb2.OPERATION_CHAT_COMPLETION,
    "prompt": pb.PromptSize(text_bytes=2_000, messages=3),
    "output_limit": 500,
}
SETTLE: dict[str, Any] = {
    "usage": usage_pb2.Usage(prompt_tokens=480, completion_tokens=210),
    "worker_id": "w-1",
    "attempts": 1,
    "ending": pb.ENDING_COMPLETED,
}


@dataclass
class Times:
    """What the callers saw, in seconds."""

    reserves: list[float] = field(default_factory=list)
    settles: list[float] = field(default_factory=list)

    def at(self, share: float) -> dict[str, float]:
        """A percentile of each, in milliseconds."""
        return {"reserve_ms": _at(self.reserves, share), "settle_ms": _at(self.settles, share)}


def _at(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 2)


class Lane:
    """What waits to be sent; one message of it is on its way at a time."""

    def __init__(self, send: Callable[[list[tuple[float, str]]], Awaitable[None]]) -> None:
        self._send = send
        self._waiting: list[tuple[float, str]] = []
        self._wake = asyncio.Event()

    def add(self, since_s: float, subject: str) -> None:
        """Whom it is about, and since when it waits."""
        self._waiting.append((since_s, subject))
        self._wake.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._wake.wait()
            taken, self._waiting = self._waiting[:MAX_ITEMS], self._waiting[MAX_ITEMS:]
            if not self._waiting:
                self._wake.clear()
            await self._send(taken)


class Load:
    """Callers of one billing process. A caller is no more than its place in a lane, so that the load costs little beside what
    it measures."""

    def __init__(self, client: Client, keys: list[str]) -> None:
        self._client = client
        self._keys = cycle(keys)
        self._reserves, self._settles = Lane(self._reserve), Lane(self._settle)
        self.times = Times()
        self._until, self._cycles, self._callers = 0.0, 0, 0
        self._ended = asyncio.Event()

    def _begin(self, callers: int, seconds: float, cycles: int) -> None:
        self.times = Times()
        self._until = time.perf_counter() + seconds
        self._cycles = cycles
        self._callers = callers
        self._ended = asyncio.Event()
        now = time.perf_counter()
        for _ in range(callers):
            self._reserves.add(now, next(self._keys))

    async def run(self, callers: int, seconds: float = 3600, cycles: int = 2**62) -> float:
        """Cycles a second: for so long, or until there were so many. `times` has what was seen."""
        began = time.perf_counter()
        self._begin(callers, seconds, cycles)
        async with asyncio.TaskGroup() as sending:
            lanes = [sending.create_task(lane.run()) for lane in (self._reserves, self._settles)]
            ended = sending.create_task(self._ended.wait())
            await ended
            took_s = time.perf_counter() - began
            for lane in lanes:
                lane.cancel()
        return len(self.times.settles) / took_s

    async def _reserve(self, waiting: list[tuple[float, str]]) -> None:
        request = pb.ReserveRequest()
        for _, key_id in waiting:
            request.items.add(reservation_id=uuid7(), key_id=key_id, **RESERVE)
        results = (await self._client.reservations.Reserve(request)).results
        now = time.perf_counter()
        for (since_s, _), held in zip(waiting, results, strict=True):
            assert held.reservation.state == pb.RESERVATION_STATE_HELD, held
            self.times.reserves.append(now - since_s)
            self._settles.add(now, held.reservation_id)

    async def _settle(self, waiting: list[tuple[float, str]]) -> None:
        request = pb.SettleRequest()
        for _, reservation_id in waiting:
            request.items.add(reservation_id=reservation_id, **SETTLE)
        results = (await self._client.reservations.Settle(request)).results
        now = time.perf_counter()
        for (since_s, _), charged in zip(waiting, results, strict=True):
            assert charged.status == pb.SETTLE_STATUS_SETTLED, charged
            self.times.settles.append(now - since_s)
            if now < self._until and len(self.times.settles) < self._cycles:
                self._reserves.add(now, next(self._keys))
            else:
                self._callers -= 1
        if not self._callers:
            self._ended.set()


def pace_us() -> int:
    """How long a fixed piece of Python takes now: what is run beside us on the same cores shows here."""
    took = []
    for _ in range(5):
        began, total = time.perf_counter(), 0
        for number in range(20_000):
            total += number
        took.append(time.perf_counter() - began)
    return round(min(took) * 1e6)


async def open_accounts(client: Client, count: int) -> list[str]:
    """So many accounts with credit; a key of each."""
    keys: list[str] = []
    for numbers in _chunks(count):
        accounts = [
            account_pb2.CreateAccountItem(operation_id=uuid7(), name="bench", credit=to_money(parse_usd("1000000")))
            for _ in numbers
        ]
        opened = await client.accounts.CreateAccounts(account_pb2.CreateAccountsRequest(items=accounts), metadata=ADMIN)
        made = [make_key()[1] for _ in numbers]
        items = [
            key_pb2.CreateKeyItem(
                operation_id=uuid7(),
                account_id=result.account.account_id,
                key_id=each.key_id,
                key_sha256=each.sha256,
            )
            for result, each in zip(opened.results, made, strict=True)
        ]
        await client.keys.CreateKeys(key_pb2.CreateKeysRequest(items=items), metadata=ADMIN)
        keys += [each.key_id for each in made]
    return keys


def _chunks(count: int) -> Iterator[range]:
    for start in range(0, count, SETUP_ITEMS):
        yield range(min(SETUP_ITEMS, count - start))


async def speed(client: Client, seconds: float, say: Callable[..., None]) -> None:
    """One hot account, 1,000 accounts, one caller alone."""
    for accounts in (1, 1_000):
        load = Load(client, await open_accounts(client, accounts))
        await load.run(CALLERS, seconds=1)
        before_us = pace_us()
        rate = await load.run(CALLERS, seconds)
        pace = [before_us, pace_us()]
        times = load.times
        say(
            accounts=accounts,
            callers=CALLERS,
            cycles_per_s=round(rate),
            p50=times.at(0.5),
            p99=times.at(0.99),
            pace_us=pace,
        )
    await load.run(1, min(seconds, 5))
    say(accounts=1_000, callers=1, p50=load.times.at(0.5), p99=load.times.at(0.99), pace_us=[pace_us()])


async def growth(
    client: Client, process: psutil.Process, accounts: int, entries: int, say: Callable[..., None]
) -> list[Series]:
    """Processor time of billing for a cycle: while accounts become many, then while their entries do."""
    keys = await open_accounts(client, 10)
    by_accounts, by_entries = Series("accounts"), Series("entries")

    async def measure(series: Series, at: int) -> None:
        before = process.cpu_times()
        await Load(client, keys).run(CALLERS, cycles=4_000)
        after = process.cpu_times()
        spent_us = round((after.user + after.system - before.user - before.system) / 4_000 * 1e6)
        series.points.append((at, spent_us))
        say(**{series.name: at, "billing_cpu_us_per_cycle": spent_us})

    written = 0
    while len(keys) < accounts:
        await measure(by_accounts, len(keys))
        written += 4_000
        keys += await open_accounts(client, min(len(keys) * 9, accounts - len(keys)))
    await measure(by_accounts, len(keys))
    # A charge is two entries: the account's and the house's.
    done, target = written * 2, max(written * 2, 1_000)
    while True:
        await measure(by_entries, done)
        done += 8_000
        if target >= entries:
            return [by_accounts, by_entries]
        target = min(target * 3, entries)
        if (missing := (target - done) // 2) > 0:
            await Load(client, keys).run(CALLERS, cycles=missing)
            done += missing * 2


async def main(options: argparse.Namespace) -> None:
    """Run, and print a JSON object for each measurement."""
    about = {
        "date": datetime.now(UTC).date().isoformat(),
        "database": options.database.partition(":")[0] or "sqlite",
        "cpus": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
    }

    def say(**figures: Any) -> None:
        print(json.dumps(about | figures), flush=True)

    with tempfile.TemporaryDirectory(prefix="speedinfer-bench-", dir=options.folder) as folder:
        billing = Process(Path(folder), options.database)
        client = await billing.start()
        try:
            await client.set_price()
            if options.growth:
                process = psutil.Process(billing.process.pid)
                found = await growth(client, process, options.growth, options.entries, say)
                if options.plot:
                    write_svg(options.plot, found, "billing's processor time, us a cycle")
            else:
                await speed(client, options.seconds, say)
        finally:
            await client.channel.close()
            await billing.terminate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", default="", help="as billing's setting; empty: SQLite in a new folder")
    parser.add_argument("--folder", type=Path, help="where the new folder is made; its disk is what is measured")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--growth", type=int, default=0, help="grow to so many accounts instead")
    parser.add_argument("--entries", type=int, default=100_000, help="and then to so many entries")
    parser.add_argument("--plot", type=Path, help="an SVG file of the growth")
    uvloop.run(main(parser.parse_args()))
