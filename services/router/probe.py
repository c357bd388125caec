"""Looking at workers over and over: one loop for each. The registrar starts it.

A worker that is up gets the cheap probe; one that is not gets the whole check, so that it comes back only as what it was
registered as. Both are bounded in time here.
"""

import asyncio
import time
from contextlib import suppress
from random import Random

import structlog
from speedinfer.router.v1.fleet_pb2 import WorkerStatus

from services.common.settings import RouterLimits
from services.router.health import NO_USAGE
from services.router.told_finding import told
from services.router.transport.port import MISCONFIGURED, TIMEOUT, Finding
from services.router.worker import LastProbe, Worker

_log = structlog.get_logger(__name__)

# A worker that lost its usage in real traffic passes a check that looks at one token: it gets another chance, but seldom.
AFTER_LOST_USAGE_S = 30.0
# Attention is asked for by failing requests; however many fail, a worker is not looked at more often than this.
MIN_INTERVAL_S = 0.25


class Prober:
    """Looks at workers."""

    def __init__(self, limits: RouterLimits, chance: Random) -> None:
        self._limits = limits
        self._chance = chance

    async def watch(self, worker: Worker) -> None:
        """Look at a worker again and again until it is retired. One that nobody has looked at yet is looked at at once."""
        if worker.last_probe is None:
            await self._look(worker)
        while not worker.retired:
            await self._rest(worker)
            if not worker.retired:
                await self._look(worker)

    async def check(self, worker: Worker) -> tuple[Finding, LastProbe]:
        """The whole check, bounded."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._limits.check_timeout_s):
                finding = await worker.transport.check()
        except TimeoutError:
            finding = Finding(TIMEOUT, f"the check took longer than {self._limits.check_timeout_s:g} s")
        return told(finding, worker.registration), _ended(started)

    async def _probe(self, worker: Worker) -> tuple[Finding, LastProbe]:
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._limits.probe_timeout_s):
                finding = await worker.transport.probe()
        except TimeoutError:
            finding = Finding(TIMEOUT, f"the probe took longer than {self._limits.probe_timeout_s:g} s")
        return told(finding, worker.registration), _ended(started)

    async def _look(self, worker: Worker) -> None:
        before = worker.health.status
        if worker.health.is_up:
            finding, last = await self._probe(worker)
            worker.health.on_probe(finding)
        else:
            finding, last = await self._probe(worker)
            if not finding.error:
                # Cheap first: a worker that is down costs no more than that.
                finding, last = await self.check(worker)
            worker.health.on_check(finding)
        after = worker.health.status
        worker.looked_at(last, status_changed=after != before)
        if after != before:
            _log.info("worker_status", worker_id=worker.worker_id, status=WorkerStatus.Name(after), error=finding.error)

    async def _rest(self, worker: Worker) -> None:
        had_usage = worker.health.finding != NO_USAGE
        await self._pause(worker)
        if had_usage and worker.health.finding == NO_USAGE and not worker.retired:
            # It lost its usage meanwhile: the longer rest begins only then.
            await self._pause(worker)

    async def _pause(self, worker: Worker) -> None:
        interval_s = self._limits.probe_interval_s
        if worker.health.finding == NO_USAGE:
            interval_s = max(interval_s, AFTER_LOST_USAGE_S)
        elif worker.health.finding.error not in ("", MISCONFIGURED):
            interval_s = min(interval_s, self._limits.probe_interval_down_s)
        # Not all workers in the same instant.
        interval_s *= self._chance.uniform(0.9, 1.1)
        await asyncio.sleep(min(MIN_INTERVAL_S, interval_s))
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, interval_s - MIN_INTERVAL_S)):
                await worker.attention.wait()
        if not worker.retired and worker.health.finding != NO_USAGE:
            worker.attention.clear()


def _ended(started: float) -> LastProbe:
    return LastProbe(at_s=time.time(), latency_ms=(time.monotonic() - started) * 1000)
