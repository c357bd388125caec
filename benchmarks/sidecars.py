"""What the sidecars cost: the same loads on the three services alone, and behind their Envoys with TLS on every way.

    .venv/bin/python benchmarks/sidecars.py                     some two minutes
    .venv/bin/python benchmarks/sidecars.py --rounds 1          a quick look

The services, and after them the services with four Envoys (an operator's among them), get the same loads in turn; the median of
the rounds is printed. CPU is that of edge, router, billing and, where they are, of the Envoys of these three.
"""

import argparse
import json
import os
import ssl
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

if not __package__:  # run as a script: our folder is on the path, its parent is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import uvloop

from benchmarks import load, run
from benchmarks.upstream import MODEL
from services.cli.sidecar import FOLDERS
from tests.harness.ports import free_port
from tests.harness.product import NAMES, Product
from tests.sidecars.mesh import Mesh

# Streams begun evenly, well below what either can do, for the time to the first event.
PACED_PER_S = 20.0
SETTINGS = {"SPEEDINFER_LOG_LEVEL": "warning"}


@dataclass
class Subject:
    """One of the two."""

    name: str
    url: str
    key: str
    services: Sequence[int]
    envoys: Sequence[int] = ()
    trust: ssl.SSLContext | None = None

    async def round(self, requests: int, streams: int) -> dict[str, float]:
        """Each load once."""
        whole = await self._load(clients=16, requests=requests, stream=False)
        crowd = await self._load(clients=200, requests=streams, stream=True)
        paced = await self._load(clients=0, requests=int(PACED_PER_S * 8), stream=True, per_s=PACED_PER_S)
        return {
            "CPU ms/request": whole["cpu_ms_per_request"],
            "CPU us/event": crowd["cpu_us_per_event"],
            "Envoys' part, us/event": crowd["envoys_us_per_event"],
            "first event p50, ms": paced["first_p50_ms"],
            "first event p99, ms": paced["first_p99_ms"],
        }

    async def _load(self, **wanted: Any) -> dict[str, Any]:
        before_s = load.cpu_s(self.envoys)
        pids = [*self.services, *self.envoys]
        row = await load.measure(self.url, self.key, model=MODEL, pids=pids, trust=self.trust, **wanted)
        if row["errors"]:
            raise RuntimeError(f"{self.name}: {row['errors']} errors, such as {row['first_errors']}")
        events = row["events_per_s"] * row["requests"] / row["requests_per_s"] or 1
        row["envoys_us_per_event"] = round((load.cpu_s(self.envoys) - before_s) * 1e6 / events, 1)
        return row


async def measured(subjects: Sequence[Subject], args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """The medians of each."""
    rounds: dict[str, list[dict[str, float]]] = {subject.name: [] for subject in subjects}
    for subject in subjects:
        await subject.round(200, 20)
    for _ in range(args.rounds):
        for subject in subjects:
            rounds[subject.name].append(row := await subject.round(args.requests, args.streams))
            print(json.dumps({"subject": subject.name} | row), file=sys.stderr)
    return {
        name: {what: round(median(row[what] for row in rows), 2) for what in rows[0]} for name, rows in rounds.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="measure what the sidecars cost")
    parser.add_argument("--requests", type=int, default=1000, help="whole answers of a round, 16 at once")
    parser.add_argument(
        "--streams", type=int, default=400, help="streams of 64 events 20 ms apart of a round, 200 at once"
    )
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    port = free_port()
    upstream = run.start_upstream(port)
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="speedinfer-bench-")))
            plain = stack.enter_context(Product(folder / "plain", SETTINGS))
            mesh = stack.enter_context(Mesh(folder / "mesh", None, SETTINGS, FOLDERS[0]))
            subjects = [
                Subject("services alone", plain.url, run.prepare(plain, port), [plain.pid(name) for name in NAMES]),
                Subject(
                    "behind their sidecars",
                    mesh.public_url,
                    run.prepare(mesh, port),
                    [mesh.pid(name) for name in NAMES],
                    [mesh.envoys[name].pid for name in NAMES],
                    ssl.create_default_context(cafile=str(mesh.authority)),
                ),
            ]
            found = uvloop.run(measured(subjects, args))
    finally:
        run.stop_upstream(upstream)
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M}, {os.cpu_count()} cores, Python {sys.version.split()[0]}\n")
    whats = list(next(iter(found.values())))
    print(f"| | {' | '.join(whats)} |\n|{'---|' * (len(whats) + 1)}")
    for name, figures in found.items():
        print(f"| {name} | {' | '.join(str(figures[what]) for what in whats)} |")


if __name__ == "__main__":
    main()
