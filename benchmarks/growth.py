"""What grows with the fleet, the accounts and the streams: curves of CPU and memory, drawn as SVG.

    .venv/bin/python benchmarks/growth.py workers --plots          CPU of a whole request with 1 to 1,000 workers
    .venv/bin/python benchmarks/growth.py accounts --plots         the same with 1 to 10,000 accounts, whose keys take turns
    .venv/bin/python benchmarks/growth.py streams --plots          CPU of an event and memory of a stream, 10 to 5,000 at once
    .venv/bin/python benchmarks/growth.py streams --most 100       a quick look
    .venv/bin/python benchmarks/growth.py streams --least 5000     the largest step alone

Each point is printed as a JSON object. With --plots they are drawn into `growth-*.svg` beside this file. Workers and accounts
cost something while nobody asks (probes, renewals): that is measured, too, and a second curve leaves it out. Each
number of streams gets services of its own, since memory that a crowd has left behind would hide what the next one needs. All
of a step must be open at once, come whole and be charged; else this ends with an error that says how many were not.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

if not __package__:  # run as a script: our folder is on the path, its parent is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import uvloop
from speedinfer.billing.v1 import account_pb2, account_pb2_grpc, key_pb2, key_pb2_grpc

from benchmarks import held, load, run
from benchmarks.plot import Series, write_svg
from benchmarks.upstream import MODEL
from services.common import rpc
from services.common.apikey import make_key
from services.common.ids import uuid7
from services.common.money import parse_usd, to_money
from tests.harness.ports import free_port
from tests.harness.product import NAMES, Product
from tests.harness.reservations import reservations

FOLDER = Path(__file__).parent
WORKERS = (1, 10, 100, 300, 1_000)
ACCOUNTS = (1, 10, 100, 1_000, 3_000, 10_000)
STREAMS = (10, 30, 100, 300, 1_000, 2_000, 5_000)
MANY, WARM_UP = 10**9, 200
IDLE_S = 5.0
SETUP_ITEMS = 250
CALL_TIMEOUT_S = 60.0
CREDIT_USD = "1000000"
OPEN_PER_S, EVENTS_PER_S = 60.0, 2_000.0

Say = Callable[..., None]


def up_to(counts: tuple[int, ...], most: int, least: int = 1) -> list[int]:
    """Those of the steps that are not above `most`, nor below `least`."""
    return [count for count in counts if least <= count <= most]


def pids(product: Product) -> list[int]:
    """All three services."""
    return [product.pid(name) for name in NAMES]


def whole(product: Product, keys: list[str], seconds: float) -> dict[str, Any]:
    """CPU of a whole request, 16 at once, and what the services use in a second of rest."""
    common: dict[str, Any] = {"model": MODEL, "clients": 16, "stream": False, "pids": pids(product)}
    uvloop.run(load.measure(product.url, keys, requests=WARM_UP, **common))
    before_s = load.cpu_s(common["pids"])
    time.sleep(IDLE_S)
    idle_ms_per_s = (load.cpu_s(common["pids"]) - before_s) * 1e3 / IDLE_S
    row = uvloop.run(load.measure(product.url, keys, requests=MANY, seconds=seconds, **common))
    names = ("cpu_ms_per_request", "requests_per_s", "p50_ms", "p99_ms", "errors", "first_errors", "rss_peak_mib")
    beyond_rest_ms = row["cpu_ms_per_request"] - idle_ms_per_s / max(row["requests_per_s"], 0.1)
    rest = {"idle_ms_per_s": round(idle_ms_per_s, 1), "cpu_ms_beyond_rest": round(beyond_rest_ms, 3)}
    return rest | {name: row[name] for name in names}


class Curves:
    """CPU of a request: all of it, and without what the services use when nobody asks."""

    def __init__(self, name: str) -> None:
        self.series = [Series(name), Series(f"{name}, without what rest uses")]

    def add(self, count: int, row: dict[str, Any]) -> None:
        """One step."""
        for series, figure in zip(self.series, ("cpu_ms_per_request", "cpu_ms_beyond_rest"), strict=True):
            series.points.append((count, row[figure]))


def by_workers(product: Product, port: int, options: argparse.Namespace, say: Say) -> dict[str, list[Series]]:
    """All of them are the same upstream under different names."""
    key = run.prepare(product, port)
    found = Curves("workers")
    have = 1
    for count in up_to(WORKERS, options.most):
        for number in range(have, count):
            product.register(run.registration(f"bench-{number}", port, check="metadata"))
        have = max(have, count)
        row = whole(product, [key], options.seconds)
        found.add(count, row)
        say(workers=count, **row)
    return {"workers": found.series}


def by_accounts(product: Product, port: int, options: argparse.Namespace, say: Say) -> dict[str, list[Series]]:
    """Requests go round all keys: with many, nearly each has to be authorised anew."""
    run.prepare(product, port)
    found, keys = Curves("accounts"), list[str]()
    for count in up_to(ACCOUNTS, options.most):
        keys += uvloop.run(open_accounts(product, count - len(keys)))
        row = whole(product, keys, options.seconds)
        found.add(count, row)
        say(accounts=count, **row)
    return {"accounts": found.series}


async def open_accounts(product: Product, count: int) -> list[str]:
    """So many accounts with credit; the text of a key of each."""
    admin = (("authorization", f"Bearer {product.admin_token}"),)
    texts: list[str] = []
    async with rpc.channel(product.address("billing")) as channel:
        accounts = account_pb2_grpc.AccountServiceStub(channel)
        keys = key_pb2_grpc.KeyServiceStub(channel)
        for start in range(0, count, SETUP_ITEMS):
            made = [make_key() for _ in range(min(SETUP_ITEMS, count - start))]
            opening = account_pb2.CreateAccountsRequest(
                items=[
                    account_pb2.CreateAccountItem(
                        operation_id=uuid7(), name="bench", credit=to_money(parse_usd("1000"))
                    )
                    for _ in made
                ]
            )
            opened = await accounts.CreateAccounts(opening, metadata=admin, timeout=CALL_TIMEOUT_S)
            adding = key_pb2.CreateKeysRequest(
                items=[
                    key_pb2.CreateKeyItem(
                        operation_id=uuid7(),
                        account_id=result.account.account_id,
                        key_id=key.key_id,
                        key_sha256=key.sha256,
                    )
                    for result, (_, key) in zip(opened.results, made, strict=True)
                ]
            )
            await keys.CreateKeys(adding, metadata=admin, timeout=CALL_TIMEOUT_S)
            texts += [text for text, _ in made]
    return texts


def streams(product: Product, port: int, count: int, open_per_s: float = OPEN_PER_S) -> dict[str, Any]:
    """One number of them, over services that have seen only a few. They are of an account of their own, all of whose holds
    must be charged in the end."""
    key = run.prepare(product, port)
    common: dict[str, Any] = {"model": MODEL, "pids": pids(product)}
    uvloop.run(load.measure(product.url, key, clients=20, requests=40, stream=True, **common))
    account = product.account(CREDIT_USD)
    memory = held.Memory({name: product.pid(name) for name in ("edge", "router")})

    async def watched() -> dict[str, Any]:
        async with memory:
            return await held.hold(
                product.url,
                product.key(account),
                streams=count,
                open_per_s=open_per_s,
                events_per_s=EVENTS_PER_S,
                memory_pids=[product.pid("edge"), product.pid("router")],
                **common,
            )

    row = uvloop.run(watched()) | memory.row()
    charged = sum(hold.state == "settled" for hold in reservations(product, account))
    return row | {"not_charged": count - charged}


def fault(row: dict[str, Any]) -> str:
    """What a row of streams does not hold: all at once, without an error, none cut, all charged. Empty if it holds it all."""
    wrong = {
        "not open at once": row["streams"] - row["open_at_once"],
        "with an error": row["errors"],
        "events lost": row["lost_events"],
        "not charged": row["not_charged"],
    }
    return ", ".join(f"{number} {what}" for what, number in wrong.items() if number)


def drawn(curves: dict[str, list[Series]]) -> None:
    """A file for each curve."""
    titles = {
        "workers": "CPU of a whole request, ms",
        "accounts": "CPU of a whole request, ms",
        "events": "CPU of a streamed event, us",
        "memory": "memory of an open stream, edge and router, KiB",
    }
    for name, series in curves.items():
        write_svg(FOLDER / f"growth-{name}.svg", series, titles[name])


def measured(options: argparse.Namespace, port: int, folder: Path, say: Say) -> dict[str, list[Series]]:
    """The curves of what is asked for."""
    settings = {"SPEEDINFER_LOG_LEVEL": "warning"}
    if options.what != "streams":
        with Product(folder / "product", settings) as product:
            return (by_workers if options.what == "workers" else by_accounts)(product, port, options, say)
    events, memory = Series("streams"), Series("streams")
    for count in up_to(STREAMS, options.most, options.least):
        with Product(folder / str(count), settings) as product:
            row = streams(product, port, count, options.open_per_s)
        say(**row)
        if wrong := fault(row):
            options.faults.append(f"{count} streams: {wrong}")
        at = row["open_at_once"]
        for series, value in ((events, row["cpu_us_per_event"]), (memory, row["kib_per_stream"])):
            if at and value is not None:
                series.points.append((at, value))
    return {"events": [events], "memory": [memory]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("workers", "accounts", "streams"))
    parser.add_argument("--most", type=int, default=10**6, help="leave out the steps above this")
    parser.add_argument("--seconds", type=float, default=8, help="for each load of whole requests")
    parser.add_argument("--least", type=int, default=1, help="leave out the steps below this")
    parser.add_argument("--open-per-s", type=float, default=OPEN_PER_S, help="how fast streams are opened")
    parser.add_argument("--plots", action="store_true", help="draw growth-*.svg")
    options = parser.parse_args(namespace=argparse.Namespace(faults=[]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    about = {
        "at": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
        "load_average": round(os.getloadavg()[0], 2),
    }
    errors = 0

    def say(**row: Any) -> None:
        nonlocal errors
        errors += row["errors"]
        print(json.dumps(about | row), flush=True)

    port = free_port()
    upstream = run.start_upstream(port)
    try:
        with tempfile.TemporaryDirectory(prefix="speedinfer-growth-") as folder:
            curves = measured(options, port, Path(folder), say)
    finally:
        run.stop_upstream(upstream)
    if options.plots:
        drawn(curves)
    if options.faults:
        sys.exit("; ".join(options.faults))
    if errors:
        sys.exit("there were errors: the figures above are no measurement")


if __name__ == "__main__":
    main()
