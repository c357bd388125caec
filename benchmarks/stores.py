"""Durable reserve+settle cycles through gRPC: callers behind one client that batches, against SQLite or PostgreSQL.

    .venv/bin/python benchmarks/stores.py                             SQLite in a folder that is removed afterwards
    .venv/bin/python benchmarks/stores.py --store postgresql          a PostgreSQL of its own, from its wheel
    .venv/bin/python benchmarks/stores.py --accounts 1 --callers 1    one hot account, a lone caller

One billing process, one client on the same machine. A cycle is a hold and its charge, both acknowledged.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if not __package__:  # run as a script: our folder is on the path, its parent is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import psutil
import uvloop
from speedinfer.billing.v1 import reservation_pb2 as pb

from tests.contract.billing import postgresql
from tests.contract.billing.service import Client, Process

MAX_ITEMS = 512
BYTES, OUTPUT_TOKENS = 400, 100


class Batch:
    """Items of many callers in one call, one call at a time: what waits goes with the next."""

    def __init__(self, call: Callable[[list[Any]], Awaitable[Any]]) -> None:
        self._call = call
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self._running: asyncio.Task[None] | None = None

    async def ask(self, item: Any) -> Any:
        """The item's result."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting[:MAX_ITEMS], self._waiting[MAX_ITEMS:]
            response = await self._call([item for item, _ in taken])
            for (_, answer), result in zip(taken, response.results, strict=True):
                answer.set_result(result)
        self._running = None


async def prepare(client: Client, accounts: int) -> list[str]:
    """A key of each of so many accounts with much credit."""
    await client.set_price()
    return [await client.key(await client.open_account("100000")) for _ in range(accounts)]


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


async def measure(client: Client, pid: int, keys: list[str], callers: int, seconds: float) -> dict[str, Any]:
    """Cycles for a while, after a short warm-up."""
    reserves = Batch(lambda items: client.reservations.Reserve(pb.ReserveRequest(items=items)))
    settles = Batch(lambda items: client.reservations.Settle(pb.SettleRequest(items=items)))
    took: list[float] = []
    cycles = 0
    used = cpu_s(pid)
    begin = time.perf_counter() + 1.0
    end = begin + seconds
    prompt = pb.PromptSize(text_bytes=BYTES)

    async def caller(number: int) -> None:
        nonlocal cycles
        turn = number
        while (started := time.perf_counter()) < end:
            item = client.reserve_item(keys[turn % len(keys)], prompt=prompt, output_limit=OUTPUT_TOKENS)
            held = await reserves.ask(item)
            assert held.reservation.state == pb.RESERVATION_STATE_HELD, held
            settled = await settles.ask(client.settle_item(item.reservation_id, 70, 30))
            assert settled.status == pb.SETTLE_STATUS_SETTLED, settled
            if started >= begin:
                took.append(time.perf_counter() - started)
            turn += callers
            cycles += 1

    await asyncio.gather(*(caller(number) for number in range(callers)))
    lasted = time.perf_counter() - begin
    used = cpu_s(pid) - used
    took.sort()
    return {
        "cycles_per_s": round(len(took) / lasted, 1),
        "billing_cpu_ms_per_cycle": round(used / cycles * 1000, 3),
        "p50_ms": round(took[len(took) // 2] * 1000, 2),
        "p99_ms": round(took[len(took) * 99 // 100] * 1000, 2),
    }


async def run(args: argparse.Namespace, folder: Path, database: str) -> dict[str, Any]:
    """Start billing, measure, and have the ledger verified."""
    process = Process(folder, database)
    client = await process.start()
    try:
        found = await measure(
            client, process.process.pid, await prepare(client, args.accounts), args.callers, args.seconds
        )
        verdict = await client.verify()
        assert verdict.ok, list(verdict.problems)
    finally:
        await client.channel.close()
        await process.terminate()
    return found


@contextmanager
def store(name: str, folder: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if name == "sqlite":
        yield f"sqlite:///{folder / 'billing.db'}"
        return
    with postgresql.running() as server:
        yield server.url


def main() -> None:
    parser = argparse.ArgumentParser(description="measure billing's ledger")
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--accounts", type=int, default=1000)
    parser.add_argument("--callers", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="speedinfer-bench-") as folder, store(args.store, Path(folder)) as database:
        found = uvloop.run(run(args, Path(folder), database))
    about = {"cores": os.cpu_count(), "load_average": round(load, 1)}
    print(json.dumps({"store": args.store, "accounts": args.accounts, "callers": args.callers} | found | about))


if __name__ == "__main__":
    main()
