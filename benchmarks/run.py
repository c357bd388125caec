"""`make bench`: starts the three services and the measuring worker, runs both loads, prints a row for each.

    .venv/bin/python benchmarks/run.py                   4000 requests, 16 at once; then 600 streams, 200 at once
    .venv/bin/python benchmarks/run.py --requests 500    a quick look

CPU is that of edge, router and billing together. Everything is on loopback and in a folder that is removed afterwards.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

if not __package__:  # run as a script: our folder is on the path, its parent is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import uvloop

from benchmarks import load
from benchmarks.upstream import MODEL
from tests.harness.ports import free_port
from tests.harness.product import NAMES, Product

EVENTS, GAP_MS = 64, 20


def start_upstream(port: int) -> subprocess.Popen[bytes]:
    """The measuring worker, ready."""
    script = Path(__file__).with_name("upstream.py")
    process = subprocess.Popen(
        [sys.executable, str(script), str(port), "--events", str(EVENTS), "--gap-ms", str(GAP_MS)],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    if process.stdout.readline().strip() != b"READY":
        process.kill()
        raise RuntimeError("the measuring worker did not start")
    return process


def stop_upstream(process: subprocess.Popen[bytes]) -> None:
    """End it."""
    process.terminate()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def registration(worker_id: str, port: int, **config: str) -> dict[str, Any]:
    """The measuring worker, under a name."""
    return {
        "worker_id": worker_id,
        "worker_type": "bench",
        "runtime": "openai-compatible",
        "runtime_endpoint": f"http://127.0.0.1:{port}/v1",
        "supported_models": [MODEL],
        "runtime_config": {"transport": "openai", **config},
    }


def prepare(product: Product, port: int) -> str:
    """Register the worker, set a price, and make a key with much credit."""
    worker = product.register(registration("bench", port))
    if worker["status"] != "healthy":
        raise RuntimeError(f"the measuring worker is {worker['status']}: {worker['detail']}")
    product.price(MODEL)
    return product.key(product.account("1000000"))


async def rows(product: Product, key: str, requests: int, streams: int) -> list[dict[str, Any]]:
    """Both loads, after a short one that warms everything up."""
    pids = [product.pid(name) for name in NAMES]
    common: dict[str, Any] = {"model": MODEL, "pids": pids}
    await load.measure(product.url, key, clients=16, requests=200, stream=False, **common)
    await load.measure(product.url, key, clients=20, requests=20, stream=True, **common)
    return [
        await load.measure(product.url, key, clients=16, requests=requests, stream=False, **common),
        await load.measure(product.url, key, clients=200, requests=streams, stream=True, **common),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="measure the three services")
    parser.add_argument("--requests", type=int, default=4000, help="whole answers, 16 at once")
    parser.add_argument("--streams", type=int, default=600, help="streams of 64 events 20 ms apart, 200 at once")
    args = parser.parse_args()
    port = free_port()
    upstream = start_upstream(port)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="speedinfer-bench-") as folder,
            Product(Path(folder), {"SPEEDINFER_LOG_LEVEL": "warning"}) as product,
        ):
            found = uvloop.run(rows(product, prepare(product, port), args.requests, args.streams))
    finally:
        stop_upstream(upstream)
    about = {"at": datetime.now(UTC).date().isoformat(), "cores": os.cpu_count(), "python": sys.version.split()[0]}
    for row in found:
        print(json.dumps(about | row))
    print()
    print(
        "| date | load | CPU ms/request | CPU us/event | requests/s | p50 ms | p99 ms | first p50 ms | peak MiB | errors |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in found:
        what = f"{row['clients']} streams at once" if row["stream"] else f"{row['clients']} whole at once"
        per_event = row["cpu_us_per_event"] if row["stream"] else ""
        print(
            f"| {about['at']} | {what} | {row['cpu_ms_per_request']} | {per_event} | {row['requests_per_s']} "
            f"| {row['p50_ms']} | {row['p99_ms']} | {row['first_p50_ms'] or ''} | {row['rss_peak_mib']} | {row['errors']} |"
        )
    if any(row["errors"] for row in found):
        sys.exit("there were errors: the rows above are no measurement")


if __name__ == "__main__":
    main()
