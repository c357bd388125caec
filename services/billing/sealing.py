"""Makes seals: now and then while there is something to seal, and when asked. The composition root runs it.

What is sealed is read beside the writer and signed there; the writer only stores the result, one row.
"""

import asyncio
from pathlib import Path

import structlog

from services.billing import seal_key
from services.billing.clock import Clock
from services.billing.engine import Engine
from services.billing.metrics import Metrics
from services.billing.operations.seal import AddSeal
from services.billing.reading import Reading
from services.billing.seal import MAX_HEADS, Seal, Unsealed, next_statement, sealed
from services.common.errors import ConfigurationError, ServiceError, Unavailable

_log = structlog.get_logger(__name__)


class Sealing:
    """See above. Seals follow one another, so one is made at a time."""

    def __init__(
        self, engine: Engine, reading: Reading, clock: Clock, metrics: Metrics, key_path: Path, interval_s: float
    ) -> None:
        self._engine = engine
        self._reading = reading
        self._clock = clock
        self._metrics = metrics
        self._key_path = key_path
        self._interval_s = interval_s
        self._one_at_a_time = asyncio.Lock()

    async def run(self) -> None:
        """Seal for ever. A restart does not put the next seal off."""
        wait_s = 0.0
        while True:
            await asyncio.sleep(wait_s)
            try:
                wait_s = await self._due_in_s()
                if not wait_s:
                    await self.seal()
                    wait_s = self._interval_s
            except ServiceError as error:
                # The next one covers what this one would have.
                self._metrics.failed_seals.inc()
                _log.error("not_sealed", error=error.message)
                wait_s = self._interval_s

    async def seal(self) -> list[Seal]:
        """Seal what is not yet sealed; answers the seals that were made, none where nothing has changed."""
        made: list[Seal] = []
        async with self._one_at_a_time:
            while True:
                unsealed = await self._reading.ask(lambda reader: reader.unsealed(MAX_HEADS))
                one = await asyncio.to_thread(self._sign, unsealed)
                if one is None:
                    return made
                if await self._engine.submit([AddSeal(one)]) is None:
                    raise Unavailable("billing's queue is full; seal again later")
                made.append(one)
                self._metrics.seals.inc()
                _log.info("sealed", number=one.number, last_entry=one.last_entry)

    async def _due_in_s(self) -> float:
        last = (await self._reading.ask(lambda reader: reader.unsealed(0))).last
        if last is None:
            return 0.0
        age_s = (self._clock.wall_ms() - last.sealed_at_ms) / 1000
        # A clock that was set back does not put it off for longer than an interval.
        return min(max(self._interval_s - age_s, 0.0), self._interval_s)

    def _sign(self, unsealed: Unsealed) -> Seal | None:
        statement = next_statement(unsealed, self._clock.wall_ms())
        if statement is None:
            return None
        try:
            # A new key where there were seals would make them look like somebody else's.
            key = (seal_key.load if unsealed.last else seal_key.load_or_make)(self._key_path)
        except (ConfigurationError, OSError) as error:
            raise ServiceError(str(error)) from error
        return sealed(statement, key.sign(statement.encoded()), key.key_id)
