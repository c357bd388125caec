"""The sweep that lets leases lapse. The composition root runs it.

The writer itself decides which leases are over, between its batches, so a sweep can never race a settlement.
"""

import asyncio

import structlog

from services.billing.engine import Engine
from services.billing.metrics import Metrics
from services.billing.operations.release import Lapse
from services.common.errors import Unavailable

_log = structlog.get_logger(__name__)

# How many lapse in one commit.
AT_MOST = 512


class Expiry:
    """See above."""

    def __init__(self, engine: Engine, metrics: Metrics, interval_s: float) -> None:
        self._engine = engine
        self._metrics = metrics
        self._interval_s = interval_s

    async def run(self) -> None:
        """Sweep for ever."""
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.sweep()
            except Unavailable as error:
                # The next one tries again; leases that are over wait.
                _log.warning("sweep_not_done", error=error.message)

    async def sweep(self) -> int:
        """Close every hold whose lease is over; answers how many."""
        total = 0
        while True:
            answers = await self._engine.submit([Lapse(AT_MOST)])
            # A full queue: the next sweep does it.
            count = answers[0].value if answers else 0
            total += count
            if count:
                self._metrics.expired.inc(count)
                _log.info("holds_expired", count=count)
            if count < AT_MOST:
                return total
