"""Five times more requests than the workers can take: what is served, what is refused, and who waits.

    .venv/bin/python benchmarks/overload.py                 20 s at five times capacity
    .venv/bin/python benchmarks/overload.py --seconds 60 --times 10

Two workers take 8 requests at once each and serve one in 0.8 s: capacity = 16 / 0.8 = 20 requests/s. One key sends nearly all
of the load (open loop: it waits for nobody), two others a hundredth of it each. A second run of the two alone shows what they
would have had without the crowd. Goodput counts the whole answers that came while the load went on.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

if not __package__:  # run as a script: our folder is on the path, its parent is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import aiohttp
import uvloop

from tests.fakes import scripts
from tests.fakes.worker import FakeWorker
from tests.harness.fake_worker import ThreadedWorker
from tests.harness.product import Product
from tests.harness.reservations import reservations

MODEL = "bench/model"
WORKERS, PLACES, SERVICE_S = 2, 8, 0.8
CAPACITY = WORKERS * PLACES / SERVICE_S
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16}


@dataclass
class Party:
    """One key and what came of its requests."""

    name: str
    key: str
    per_s: float
    served_s: list[float] = field(default_factory=list)
    refused_s: list[float] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)
    # When the last request was sent; what is served later does not count for goodput.
    ended: float = 0.0
    served_in_time: int = 0


async def ask(session: aiohttp.ClientSession, url: str, party: Party) -> None:
    """One request, whatever comes of it."""
    began = time.perf_counter()
    async with session.post(
        f"{url}/v1/chat/completions", json=BODY, headers={"authorization": f"Bearer {party.key}"}
    ) as answer:
        body = await answer.json()
    took = time.perf_counter() - began
    if answer.status == 200:
        party.served_s.append(took)
        party.served_in_time += not party.ended
    else:
        party.refused_s.append(took)
        code = f"{answer.status} {body['error']['code']}"
        party.codes[code] = party.codes.get(code, 0) + 1


async def send(session: aiohttp.ClientSession, url: str, party: Party, seconds: float) -> None:
    """So many requests a second, none of which waits for another."""
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(int(party.per_s * seconds)):
            await asyncio.sleep(max(began + number / party.per_s - time.perf_counter(), 0))
            group.create_task(ask(session, url, party))
        await asyncio.sleep(max(began + seconds - time.perf_counter(), 0))
        party.ended = time.perf_counter()


async def run(url: str, parties: list[Party], seconds: float) -> None:
    """All parties at once."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        for party in parties:
            group.create_task(send(session, url, party, seconds))


def slow_worker() -> FakeWorker:
    """Serves each request in SERVICE_S."""
    worker = FakeWorker([MODEL])
    answer = scripts.json_answer(scripts.chat_whole(MODEL, "Hello", scripts.usage(12, 5)))
    worker.scripts[MODEL] = [scripts.Pause(SERVICE_S), answer]
    return worker


def prepare(product: Product, served: list[ThreadedWorker]) -> None:
    """Register the workers, each with its bound."""
    for number, each in enumerate(served):
        product.register({
            "worker_id": f"bench-{number}",
            "worker_type": "bench",
            "runtime": "openai-compatible",
            "runtime_endpoint": each.worker.url,
            "supported_models": [MODEL],
            "runtime_config": {"transport": "openai", "check": "metadata", "max_concurrency": PLACES},
        })  # fmt: skip
    product.price(MODEL)


def at(values: list[float], share: float) -> float | None:
    """A percentile in milliseconds."""
    ordered = sorted(values)
    return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 1) if ordered else None


def figures(party: Party) -> dict[str, Any]:
    """What is told of a party."""
    return {
        "key": party.name,
        "sent_per_s": party.per_s,
        "served": len(party.served_s),
        "refused": party.codes,
        "served_p50_ms": at(party.served_s, 0.5),
        "served_p99_ms": at(party.served_s, 0.99),
        "refused_p99_ms": at(party.refused_s, 0.99),
    }


def measure(product: Product, times: float, seconds: float) -> dict[str, Any]:
    """The crowd with the two, then the two alone."""
    account = product.account("1000")
    small = max(times * CAPACITY / 100, 1.0)
    crowd = Party("crowd", product.key(account), times * CAPACITY)
    others = [Party(f"other-{number}", product.key(product.account("1000")), small) for number in (1, 2)]
    alone = [Party(f"alone-{number}", each.key, small) for number, each in enumerate(others, 1)]
    uvloop.run(run(product.url, [crowd, *others], seconds))
    served = sum(party.served_in_time for party in (crowd, *others))
    uvloop.run(run(product.url, alone, min(seconds, 10)))
    states = {held.state for held in reservations(product, account)}
    return {
        "at": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "capacity_per_s": CAPACITY,
        "times": times,
        "goodput_per_s": round(served / seconds, 1),
        "goodput_share": round(served / seconds / CAPACITY, 3),
        "reservation_states": sorted(states),
        "reservations": len(reservations(product, account)),
        "held_at_the_end": product.settled(account)["held"],
        "parties": [figures(party) for party in (crowd, *others, *alone)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="more load than there is room")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--times", type=float, default=5)
    args = parser.parse_args()
    served = [ThreadedWorker(slow_worker()) for _ in range(WORKERS)]
    with tempfile.TemporaryDirectory(prefix="speedinfer-overload-") as folder:
        for each in served:
            each.__enter__()
        try:
            with Product(Path(folder), {"SPEEDINFER_LOG_LEVEL": "warning"}) as product:
                prepare(product, served)
                found = measure(product, args.times, args.seconds)
        finally:
            for each in served:
                each.__exit__(None, None, None)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
