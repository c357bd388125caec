"""Where the CPU goes: a load on the three services, then each one's functions by the share of its CPU that they used.

    .venv/bin/python benchmarks/profile.py                          whole answers, 16 clients
    .venv/bin/python benchmarks/profile.py --stream --clients 200   streams of 64 events, 20 ms apart
    .venv/bin/python benchmarks/profile.py --service router --top 60 --stacks

*Self* is what a function used while it was innermost, with what it called in C (of `Runner.run` that is the event loop and
gRPC's part of it); *with calls* includes the Python functions that it called, below the event loop or a thread's start.
Start-up, shut-down and the load that warms up are left out. `sampler/` is what counts, at each millisecond of CPU or each
tick of the kernel; it costs some per cent, which are in the shares, so that what matters is the order, not the last digit.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

if not __package__:  # run as a script: our folder is on the path, its parent is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import uvloop

from benchmarks import load, run
from benchmarks.upstream import MODEL
from tests.harness.ports import free_port
from tests.harness.product import NAMES, Product
from tests.harness.until import until

ROOT = Path(__file__).resolve().parents[1]
SAMPLER = Path(__file__).with_name("sampler")
WRITTEN_WITHIN_S = 30.0
MANY = 10**9

# What stands above these is the same in every stack.
ENTRIES = ("asyncio/runners.py:Runner.run", "/threading.py:Thread.run")

# (functions from the outermost to the innermost, nanoseconds)
Stack = tuple[list[str], int]


def short(place: str) -> str:
    """A function's place for people: our files from the checkout's top, others from their package."""
    path, _, function = place.rpartition(":")
    for marker in ("/site-packages/", f"{ROOT}/"):
        _, found, rest = path.partition(marker)
        if found:
            return f"{rest}:{function}"
    return f"{'/'.join(path.split('/')[-2:])}:{function}" if path else place


def below_entry(functions: Sequence[str]) -> list[str]:
    """A stack from the event loop or the thread's start inwards; all of it if it has neither."""
    last = max((at for at, name in enumerate(functions) if name.endswith(ENTRIES)), default=0)
    return list(functions[last:])


def shares(stacks: Iterable[Stack]) -> tuple[int, Counter[str], Counter[str]]:
    """(nanoseconds in all, by function itself, by function with what it called: once a stack, however often it is there)."""
    total_ns, own, with_calls = 0, Counter[str](), Counter[str]()
    for functions, spent_ns in stacks:
        total_ns += spent_ns
        own[functions[-1]] += spent_ns
        for function in set(functions):
            with_calls[function] += spent_ns
    return total_ns, own, with_calls


def report(name: str, stacks: Sequence[Stack], top: int, requests: int) -> list[str]:
    """Lines for one service: the dearest by themselves, then the dearest with what they called."""
    named = [(below_entry([short(place) for place in functions]), spent_ns) for functions, spent_ns in stacks]
    total_ns, own, with_calls = shares(named)
    per_request = f", {total_ns / 1e3 / requests:.0f} us a request" if requests else ""
    lines = [f"{name}: {total_ns / 1e9:.2f} s of CPU{per_request}"]
    for title, found in (("self", own), ("with calls", with_calls)):
        lines.append(f"  {title}")
        lines += [f"  {spent_ns / total_ns:7.1%}  {function}" for function, spent_ns in found.most_common(top)]
    return lines


def dearest(stacks: Sequence[Stack], top: int) -> list[str]:
    """Whole stacks, outermost first, in the form that flame graph programs read."""
    ordered = sorted(stacks, key=lambda one: -one[1])[:top]
    return [
        f"{';'.join(below_entry([short(place) for place in functions]))} {spent_ns // 1000}"
        for functions, spent_ns in ordered
    ]


def listeners(pids: Sequence[int]) -> list[int]:
    """Those of the services' processes that wait for our signal; it would end any other."""
    bit = 1 << (signal.SIGUSR1 - 1)
    return [process.pid for process in load.family(pids) if _caught(process.pid) & bit]


def _caught(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("SigCgt:")).split()[1], 16)


def stacks_of(
    product: Product, key: str, options: argparse.Namespace, folder: Path
) -> tuple[dict[str, list[Stack]], int]:
    """(each service's stacks, requests) of one load."""
    pids = {name: product.pid(name) for name in NAMES}
    every = {name: listeners([pid]) for name, pid in pids.items()}

    def loaded(seconds: float) -> int:
        row = uvloop.run(
            load.measure(
                product.url,
                key,
                model=MODEL,
                clients=options.clients,
                requests=MANY,
                stream=options.stream,
                pids=list(pids.values()),
                seconds=seconds,
            )
        )
        if row["errors"]:
            raise SystemExit(f"the load had errors: {row['first_errors']}")
        return int(row["requests"])

    def signal_all() -> None:
        for members in every.values():
            for pid in members:
                os.kill(pid, signal.SIGUSR1)

    loaded(2)
    signal_all()
    requests = loaded(options.seconds)
    signal_all()
    found: dict[str, list[Stack]] = {}
    for name, members in every.items():
        found[name] = []
        for pid in members:
            path = folder / f"{pid}.json"
            until(path.exists, f"the samples of {name}", WRITTEN_WITHIN_S)
            written = json.loads(path.read_text())
            found[name] += written["stacks"]
            print(f"{name}, process {pid}: {written['samples']} samples", file=sys.stderr)
    return found, requests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--workers", type=int, default=1, help="so many names for the measuring worker in the registry")
    parser.add_argument("--service", choices=NAMES, help="only one of them")
    parser.add_argument("--top", type=int, default=25, help="so many functions")
    parser.add_argument("--stacks", action="store_true", help="print whole stacks instead, with their microseconds")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    port = free_port()
    upstream = run.start_upstream(port)
    try:
        with tempfile.TemporaryDirectory(prefix="speedinfer-profile-") as made:
            folder = Path(made)
            path = os.pathsep.join([str(SAMPLER), *filter(None, [os.environ.get("PYTHONPATH")])])
            settings = {"SPEEDINFER_LOG_LEVEL": "warning", "PYTHONPATH": path, "CPU_SAMPLES": str(folder)}
            with Product(folder / "product", settings) as product:
                key = run.prepare(product, port)
                for number in range(1, options.workers):
                    product.register(run.registration(f"bench-{number}", port, check="metadata"))
                found, requests = stacks_of(product, key, options, folder)
    finally:
        run.stop_upstream(upstream)
    for name, stacks in found.items():
        if options.service in (None, name) and stacks:
            lines = dearest(stacks, options.top) if options.stacks else report(name, stacks, options.top, requests)
            print("\n".join(lines), end="\n\n")


if __name__ == "__main__":
    main()
