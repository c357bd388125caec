"""A seeded storm: workers that hang, reset, answer garbage and flap, clients that leave and read slowly, services that are
killed and frozen; and at the end everything adds up.

    python -m tests.chaos.storm --seed 7 --seconds 600

Everything is on loopback, bounded in time and number, and only its own processes are stopped. A failure prints the one seed,
the plan's lines of the calls at fault, and where the logs are.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import SystemRandom
from typing import Any

from tests.chaos import plan as plans
from tests.chaos.caller import Manner
from tests.chaos.footprint import Footprint
from tests.chaos.history import Ending
from tests.chaos.numbered import Part
from tests.chaos.plan import Fault, Plan
from tests.chaos.scene import Scene

WORKERS = ("w1", "w2", "w3", "w4")
# The last customer is poor: its calls are refused for want of credit once that is spent.
CREDITS = ("1000", "1000", "1000", "0.0002")
MAX_OPEN = 80
WARM_UP = 12
CONFIG: dict[str, dict[str, Any]] = {
    name: {
        "stream_options": "continuous" if name in ("w1", "w2") else "usage",
        "connect_timeout_s": 2,
        "first_token_timeout_s": 2,
        "idle_timeout_s": 2,
        "total_timeout_s": 10,
        # One is small, so that calls wait for a place on it.
        **({"max_concurrency": 6} if name == "w4" else {}),
    }
    for name in WORKERS
}
SETTINGS = {
    # What a dead edge left behind lapses while the storm still runs.
    "SPEEDINFER_BILLING__LIMITS__LEASE_S": "6",
    "SPEEDINFER_ROUTER__LIMITS__CIRCUIT_OPEN_S": "1",
    "SPEEDINFER_EDGE__LIMITS__REQUEST_TIMEOUT_S": "20",
    # Shorter than the longest time that billing is frozen for.
    "SPEEDINFER_EDGE__LIMITS__BILLING_TIMEOUT_S": "2",
    "SPEEDINFER_EDGE__LIMITS__READER_STALL_S": "5",
}


class Storm:
    """One run of a plan."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.scene = Scene(folder, WORKERS, SETTINGS, config=CONFIG)
        # The calls that are not in the plan, made before it, are answered well.
        self.scene.part = lambda worker, call: plan.part(worker, call) if call < len(plan.asked) else Part()
        self._open = asyncio.Semaphore(MAX_OPEN)

    async def run(self) -> tuple[list[str], dict[str, Any]]:
        """What is wrong at the end, and figures of what happened."""
        async with self.scene as scene:
            customers = [await scene.account(credit, plans.KEYS_EACH) for credit in CREDITS]
            # Connections and lazily made things are there from now on.
            account_id, keys = customers[0]
            number = len(self.plan.asked)
            await asyncio.gather(
                *(scene.call(account_id, keys[0], Manner(), Part(), number + index) for index in range(WARM_UP))
            )
            before = await scene.footprint()
            started_s = time.monotonic()
            tasks = [asyncio.create_task(self._services(started_s))]
            tasks += [asyncio.create_task(self._worker(name, started_s)) for name in WORKERS]
            tasks += [
                asyncio.create_task(self._call(number, asked, customers, started_s))
                for number, asked in enumerate(self.plan.asked)
            ]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            wrong = await scene.audited()
            wrong += await self._left_behind(before)
            return wrong, self._figures()

    async def _call(
        self, number: int, asked: plans.Asked, customers: list[tuple[str, list[str]]], started_s: float
    ) -> None:
        await asyncio.sleep(max(started_s + asked.at_s - time.monotonic(), 0))
        account_id, keys = customers[asked.customer]
        async with self._open:
            await self.scene.call(account_id, keys[asked.key], asked.manner, number=number)

    async def _services(self, started_s: float) -> None:
        for fault in self.plan.faults:
            if fault.whom in plans.SERVICES:
                await asyncio.sleep(max(started_s + fault.at_s - time.monotonic(), 0))
                await self._strike(fault)

    async def _strike(self, fault: Fault) -> None:
        product = self.scene.product
        if fault.kind == "kill":
            await asyncio.to_thread(product.kill, fault.whom)
            await asyncio.to_thread(product.start, fault.whom)
            return
        pid = product.pid(fault.whom)
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(fault.lasts_s)
        finally:
            os.kill(pid, signal.SIGCONT)

    async def _worker(self, name: str, started_s: float) -> None:
        worker, loop = self.scene.workers[name], self.scene.loop
        for fault in self.plan.faults:
            if fault.whom != name:
                continue
            await asyncio.sleep(max(started_s + fault.at_s - time.monotonic(), 0))
            if fault.kind == "idle":
                loop.soon(worker.close_idle)
                continue
            await loop.run(worker.stop())
            try:
                await asyncio.sleep(fault.lasts_s)
            finally:
                await loop.run(worker.start())

    async def _left_behind(self, before: Footprint) -> list[str]:
        """What is still open when nobody asks any more: no process, however often it was killed, has more than at first."""
        try:
            await self.scene.leaves_nothing(before, 60)
        except AssertionError as error:
            return [str(error)]
        return []

    def _figures(self) -> dict[str, Any]:
        endings = Counter(call.ending.name for call in self.scene.calls)
        codes = Counter(call.code for call in self.scene.calls if call.ending is not Ending.ANSWERED and call.code)
        return {
            "seed": self.plan.seed,
            "calls": len(self.scene.calls),
            "attempts": len(self.scene.attempts()),
            "faults": len(self.plan.faults),
            "endings": dict(sorted(endings.items())),
            "codes": dict(sorted(codes.items())),
        }


def run(seed: int, seconds: float, folder: Path) -> tuple[list[str], dict[str, Any]]:
    """Play the storm of a seed; what is wrong (with the plan's lines), and figures."""
    plan = plans.make(seed, seconds, WORKERS)
    wrong, figures = asyncio.run(Storm(plan, folder).run())
    return explained(plan, wrong, folder), figures


def explained(plan: Plan, wrong: list[str], folder: Path) -> list[str]:
    """Findings with the lines of the plan that they come from."""
    if not wrong:
        return []
    lines = [
        f"seed {plan.seed}, {plan.seconds:g} s; logs and data are in {folder}",
        f"once more: python -m tests.chaos.storm --seed {plan.seed} --seconds {plan.seconds:g}",
    ]
    for finding in wrong:
        lines.append(finding)
        if (found := re.match(r"call (\d+)", finding)) and int(found[1]) < len(plan.asked):
            lines.append(plan.told(int(found[1]), WORKERS))
    return lines


def main() -> int:
    """Run one storm; exit 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")
    parser.add_argument("--seconds", type=float, default=600.0)
    arguments = parser.parse_args()
    seed = SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
    folder = Path(tempfile.mkdtemp(prefix="speedinfer-storm-"))
    print(f"seed {seed}, {arguments.seconds:g} s, in {folder}", flush=True)
    wrong, figures = run(seed, arguments.seconds, folder)
    print(json.dumps(figures, indent=2))
    print("\n".join(wrong) if wrong else "everything adds up")
    if not wrong:
        shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
