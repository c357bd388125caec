"""All billing processes that this edge knows, and the choice among them. The billing client makes it.

Invariants: a message goes to each process at most once, to the next one only where the last one failed it or was silent; a
process on probation is asked only where all are; one that left the settings' names gets nothing new, and is let go when nothing
of ours runs there. What is asked must be safe to ask twice (docs/decisions/0017).
"""

import asyncio
from collections.abc import Sequence

import grpc
import structlog
from google.protobuf.message import Message

from services.common.tasks import TaskSet
from services.edge import addresses
from services.edge.addresses import Addresses
from services.edge.billing_errors import AGAIN
from services.edge.known_billing import KnownBilling, Method, Response, Silent
from services.edge.metrics import Metrics

_log = structlog.get_logger(__name__)


class BillingPool:
    """The billings."""

    def __init__(self, targets: Sequence[str], metrics: Metrics) -> None:
        self._addresses = Addresses(targets)
        self._metrics = metrics
        self._billings: dict[str, KnownBilling] = {}
        self._retired: list[KnownBilling] = []
        self._turn = 0
        self._turns: dict[str, int] = {}
        self._tasks = TaskSet()
        metrics.billings_fit.set_function(lambda: sum(each.fit for each in self._billings.values()))
        self._know(self._addresses.known)

    async def start(self) -> None:
        """Look up what the settings name, again and again, until `close`."""
        self._know(await self._addresses.look_up())
        self._tasks.spawn(self._look_up_again(), "look-up-billings")

    @property
    def channels(self) -> Sequence[grpc.aio.Channel]:
        """To each process."""
        return [each.channel for each in self._billings.values()]

    async def ask(self, method: Method[Response], request: Message, timeout_s: float) -> Response:
        """The answer of one that has it. AioRpcError as the last one that was asked failed."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        tried: set[KnownBilling] = set()
        while True:
            billing = self._fittest(tried) or self._longest_ago()
            tried.add(billing)
            self._turn += 1
            self._turns[billing.address] = self._turn
            left_s = max(deadline_s - loop.time(), 0.001)
            try:
                return await billing.ask(method, request, left_s, lambda: self._fittest(tried) is not None)
            except Silent:
                why = "silent"
            except grpc.aio.AioRpcError as error:
                if error.code() not in AGAIN or self._fittest(tried) is None:
                    raise
                why = "failed"
            self._metrics.billing_moves.labels(why).inc()

    async def close(self) -> None:
        """Break off what runs."""
        await self._tasks.cancel()
        for billing in [*self._billings.values(), *self._retired]:
            await billing.close()

    def _fittest(self, tried: set[KnownBilling]) -> KnownBilling | None:
        """Of those that were not tried and are not on probation the one with the fewest calls; in turn where that is even."""
        fit = [each for each in self._billings.values() if each.fit and each not in tried]
        if not fit:
            return None
        return min(fit, key=lambda each: (each.open, self._turns.get(each.address, 0)))

    def _longest_ago(self) -> KnownBilling:
        """Where all are on probation: somebody must be asked."""
        return min(self._billings.values(), key=lambda each: each.failed_at_s)

    def _know(self, found: Sequence[str]) -> None:
        """From now on these are the processes."""
        known, self._billings = self._billings, {}
        for address in found:
            self._billings[address] = known.pop(address) if address in known else KnownBilling(address)
        for billing in known.values():
            self._turns.pop(billing.address, None)
            self._retired.append(billing)

    async def _look_up_again(self) -> None:
        while True:
            await asyncio.sleep(addresses.LOOK_UP_EVERY_S)
            self._know(await self._addresses.look_up())
            for billing in [each for each in self._retired if not each.open]:
                self._retired.remove(billing)
                _log.info("billing_gone", billing=billing.address)
                await billing.close()
