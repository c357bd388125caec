"""Streams that are open at the same time: what memory each holds, and what an event costs while nothing begins or ends.

The streams begin one after another, so that opening them is no crowd, and send so slowly that they share `events_per_s`.
They live until the last one has long been open; the events of a short window after that are what is measured. Whether all
were open at once, and whether every event of every stream came, is counted, too.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from math import ceil
from typing import Any

from benchmarks import load
from benchmarks.upstream import pace_text

WINDOW_S, MARGIN_S = 5.0, 5.0
MIN_GAP_MS, MAX_GAP_MS = 20, 5_000
LOOK_EVERY_S = 0.05
# What the worker sends after the paced events: the finish, the usage, [DONE].
LAST_EVENTS = 3


@dataclass(frozen=True)
class Plan:
    """How the streams are paced."""

    events: int
    gap_ms: int

    @property
    def life_s(self) -> float:
        """How long the worker takes for one."""
        return self.events * self.gap_ms / 1000


def plan(streams: int, open_per_s: float, events_per_s: float) -> Plan:
    """A pace at which all streams share `events_per_s`, and as many events as outlive the opening and the window."""
    gap_ms = min(max(round(streams * 1000 / events_per_s), MIN_GAP_MS), MAX_GAP_MS)
    life_ms = (streams / open_per_s + WINDOW_S + MARGIN_S) * 1000
    return Plan(ceil(life_ms / gap_ms), gap_ms)


async def hold(
    url: str,
    key: str,
    *,
    model: str,
    streams: int,
    open_per_s: float,
    events_per_s: float,
    pids: Sequence[int],
    memory_pids: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Open them all and answer the row; `memory_pids` where memory is that of fewer processes than the CPU."""
    pace = plan(streams, open_per_s, events_per_s)
    body = load.body_of(model, stream=True, prompt=load.PROMPT + pace_text(pace.events, pace.gap_ms))
    asking = load.Load(url, [key], body, streams)
    seen, holders = asking.figures, pids if memory_pids is None else memory_pids
    idle_mib, memory = load.rss_mib(holders), load.PeakMemory(holders)
    async with memory:
        run = asyncio.create_task(asking.paced(open_per_s))
        # The figures tell nobody when they change.
        while not run.done() and not seen.latency_s and len(seen.first_s) + len(seen.errors) < streams:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_EVERY_S)
        at_once = len(seen.first_s) - len(seen.latency_s)
        cpu_s, events, began = load.cpu_s(pids), seen.events, asyncio.get_running_loop().time()
        await asyncio.wait([run], timeout=WINDOW_S)
        used_s, moved = load.cpu_s(pids) - cpu_s, seen.events - events
        wall_s = asyncio.get_running_loop().time() - began
    undisturbed = not seen.latency_s
    await run
    return {
        "streams": streams,
        "open_at_once": at_once,
        "lost_events": streams * (pace.events + LAST_EVENTS) - seen.events,
        "errors": len(seen.errors),
        "first_errors": seen.errors[:3],
        "gap_ms": pace.gap_ms,
        "events_per_s": round(moved / wall_s, 1),
        # A window in which streams end measures their ends, too.
        "undisturbed": undisturbed,
        "cpu_us_per_event": round(used_s * 1e6 / moved, 1) if moved else None,
        "first_p50_ms": load.share_ms(seen.first_s, 50),
        "first_p99_ms": load.share_ms(seen.first_s, 99),
        "kib_per_stream": round((memory.peak_mib - idle_mib) * 1024 / at_once, 1) if at_once else None,
    }


class Memory:
    """What each of several processes holds before, at most, and after the block."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        """By name."""
        self._pids = pids
        self._before = {name: load.rss_mib([pid]) for name, pid in pids.items()}
        self._peaks = {name: load.PeakMemory([pid]) for name, pid in pids.items()}
        self._watching = AsyncExitStack()

    async def __aenter__(self) -> "Memory":
        for peak in self._peaks.values():
            await self._watching.enter_async_context(peak)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._watching.aclose()

    def row(self) -> dict[str, Any]:
        """MiB of each, and what they hold now."""
        return {
            f"{name}_mib": {
                "before": round(self._before[name], 1),
                "peak": round(self._peaks[name].peak_mib, 1),
                "after": round(load.rss_mib([pid]), 1),
            }
            for name, pid in self._pids.items()
        }
