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
from services.billing.store.port import Reader
from services.common.errors import ConfigurationError, ServiceError, Unavailable

_log = structlog.get_logger(__name__)

# How many seals are made at a time: for a million accounts. What is left over waits for the next time.
AT_MOST = 100
# Where another process seals: how soon this one may find that it is its turn.
LOOK_AGAIN_S = 60.0


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

    async def run(self, wait_s: float) -> None:
        """Seal for ever, first after a wait."""
        while True:
            await asyncio.sleep(wait_s)
            wait_s = self._interval_s
            if not self._engine.sweeps:
                # Another process does it, as long as it lives.
                wait_s = min(self._interval_s, LOOK_AGAIN_S)
                continue
            try:
                await self.seal()
            except ServiceError as error:
                # The next one covers what this one would have.
                self._metrics.failed_seals.inc()
                _log.error("not_sealed", error=error.message)

    async def seal(self) -> list[Seal]:
        """Seal what is not yet sealed; answers the seals that were made, none where nothing has changed. What is booked
        meanwhile is for the next time, or there would be no end of it. Unavailable where another process does it."""
        if not self._engine.sweeps:
            raise Unavailable(
                "another billing process on this database makes the seals: ask the one whose metric "
                "speedinfer_billing_sweeps is 1, by naming its address as edge.billing_target"
            )
        made: list[Seal] = []
        async with self._one_at_a_time:
            while len(made) < AT_MOST:
                unsealed = await self._reading.ask(lambda reader: reader.unsealed(MAX_HEADS))
                one = await asyncio.to_thread(self._sign, unsealed)
                if one is None:
                    break
                if await self._engine.submit([AddSeal(one)]) is None:
                    raise Unavailable("billing's queue is full; seal again later")
                made.append(one)
                self._metrics.seals.inc()
                _log.info("sealed", number=one.number, last_entry=one.last_entry)
                if len(unsealed.heads) < MAX_HEADS:
                    break
        return made

    async def due_in_s(self) -> float:
        """How long until the next seal is due, by the last one's time, so that no restart puts it off. What is there and
        was never sealed is due at once."""
        last, found = await self._reading.ask(_at_start)
        if last is None:
            return 0.0 if found else self._interval_s
        age_s = (self._clock.wall_ms() - last.sealed_at_ms) / 1000
        # A clock that was set back does not put it off for longer than an interval.
        return min(max(self._interval_s - age_s, 0.0), self._interval_s)

    def _sign(self, unsealed: Unsealed) -> Seal | None:
        try:
            statement = next_statement(unsealed, self._clock.wall_ms())
        except ValueError as error:
            raise ServiceError(f"the last seal was altered, so none can follow it: {error}") from error
        if statement is None:
            return None
        try:
            # A new key where there were seals would make them look like somebody else's.
            key = (seal_key.load if unsealed.last else seal_key.load_or_make)(self._key_path)
        except (ConfigurationError, OSError) as error:
            raise ServiceError(str(error)) from error
        return sealed(statement, key.sign(statement.encoded()), key.key_id)


def _at_start(reader: Reader) -> tuple[Seal | None, bool]:
    """The last seal, and whether there is anything to be sealed. Both are asked cheaply: somebody waits for billing."""
    return reader.unsealed(0).last, bool(reader.accounts("", 1) or reader.prices("", None, 0, 1))
