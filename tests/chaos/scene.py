"""A whole product with numbered workers and paying accounts, on which calls are made and then audited.

The workers live in a loop of their own thread, since their connections outlive single tests.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.chaos import books, caller
from tests.chaos.auditor import COMPLETION_PRICE, PROMPT_PRICE, audit
from tests.chaos.caller import Manner
from tests.chaos.footprint import Footprint, measure
from tests.chaos.history import Attempt, Call
from tests.chaos.numbered import MODEL, NumberedWorker, Part
from tests.harness.loop_thread import LoopThread
from tests.harness.ports import free_port
from tests.harness.product import Product
from tests.harness.until import until_async

CREDIT = "1000"


class Scene:
    """`async with Scene(folder, workers, settings) as scene:`."""

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        settings: Mapping[str, str],
        models: Mapping[str, str] | None = None,
        config: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`models`: worker -> public model, where it is not MODEL. `config`: worker -> further runtime_config."""
        self.router_metrics = f"127.0.0.1:{free_port()}"
        self.product = Product(folder, {"SPEEDINFER_ROUTER__METRICS_LISTEN": self.router_metrics, **settings})
        # Call -> what every worker does with it, or what each does.
        self.parts: dict[int, Part] = {}
        self.part: Callable[[str, int], Part] = lambda _worker, call: self.parts.get(call, Part())
        self.workers = {name: NumberedWorker(name, lambda worker, call: self.part(worker, call)) for name in names}
        self.calls: list[Call] = []
        self.accounts: list[str] = []
        self.loop = LoopThread("numbered workers")
        # A command owns the process's standard output while it runs.
        self._commanding = asyncio.Lock()
        self._models = models or {}
        self._config = config or {}

    async def __aenter__(self) -> "Scene":
        self.loop.start()
        try:
            for worker in self.workers.values():
                await self.loop.run(worker.start())
            await asyncio.to_thread(self._open)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.product.close)
        for worker in self.workers.values():
            await self.loop.run(worker.stop())
        self.loop.stop()

    def _open(self) -> None:
        self.product.__enter__()
        for model in {MODEL, *self._models.values()}:
            self.product.price(model, PROMPT_PRICE, COMPLETION_PRICE)
        for name, worker in self.workers.items():
            shown = self.product.register(
                worker.registration(self._models.get(name, MODEL), **self._config.get(name, {}))
            )
            assert shown["status"] == "healthy", shown

    async def account(self, credit: str = CREDIT, keys: int = 1) -> tuple[str, list[str]]:
        """A new account, audited at the end, and keys of it."""
        async with self._commanding:
            account_id = await asyncio.to_thread(self.product.account, credit)
            self.accounts.append(account_id)
            return account_id, [await asyncio.to_thread(self.product.key, account_id) for _ in range(keys)]

    async def call(
        self,
        account_id: str,
        key: str,
        manner: Manner,
        part: Part | None = None,
        number: int | None = None,
        **more: Any,
    ) -> Call:
        """Make one call, where it has no number the next; its workers play `part`."""
        call = Call(len(self.calls) if number is None else number, account_id)
        self.calls.append(call)
        if part is not None:
            self.parts[call.number] = part
        return await caller.make(self.product.address("edge"), key, call, manner, **more)

    def attempts(self) -> list[Attempt]:
        """What all workers were given."""
        return [attempt for worker in self.workers.values() for attempt in worker.attempts]

    async def footprint(self) -> Footprint:
        """What is open when nothing happens: measured until it is twice the same."""
        seen = [await asyncio.to_thread(self._measure)]

        def same() -> bool:
            seen.append(self._measure())
            return seen[-1] == seen[-2]

        await until_async(same, "the footprint comes to rest")
        return seen[-1]

    async def leaves_nothing(self, before: Footprint, timeout_s: float = 30.0) -> None:
        """Wait until nothing is open that was not before. AssertionError that says what is left."""
        seen: list[Footprint] = []

        def gone() -> bool:
            seen.append(self._measure())
            return seen[-1].is_within(before)

        try:
            await until_async(gone, "what was opened is closed", timeout_s)
        except AssertionError:
            raise AssertionError(f"left behind:\n  before {before}\n  now    {seen[-1]}") from None

    def _measure(self) -> Footprint:
        return measure(self.product, self.router_metrics, list(self.workers.values()))

    async def audited(self, *, calm: bool = False) -> list[str]:
        """Everything that is wrong once all is booked."""
        await asyncio.to_thread(books.wait_until_delivered, self.product)
        found = await asyncio.to_thread(books.read, self.product, self.accounts)
        wrong = audit(self.calls, self.attempts(), found, calm=calm)
        return wrong + await asyncio.to_thread(books.problems_of_the_product, self.product)
