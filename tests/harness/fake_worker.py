"""The fake worker in a thread and a loop of its own, for tests whose own loop is blocked by what they drive."""

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

from tests.fakes.scripts import Received, Script
from tests.fakes.worker import FakeWorker

START_S = 10.0
T = TypeVar("T")


class ThreadedWorker:
    """`with ThreadedWorker(FakeWorker(models)) as served:`; `served.worker.url` is what is registered."""

    def __init__(self, worker: FakeWorker) -> None:
        self.worker = worker
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fake worker", daemon=True)

    def __enter__(self) -> "ThreadedWorker":
        self._thread.start()
        self._call(self.worker.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self.worker.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_S)
        self._loop.close()

    def plays(self, scripts: Mapping[str, Script]) -> None:
        """Model -> script from now on, besides those that are set; forgets what was received."""
        self._call(self._play(scripts))

    def received(self) -> list[Received]:
        """The requests since the last `plays`, those for /health and /v1/models left out."""
        return list(self.worker.requests)

    async def _play(self, scripts: Mapping[str, Script]) -> None:
        self.worker.scripts.update(scripts)
        self.worker.requests.clear()

    def _call(self, what: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(what, self._loop)
        return future.result(START_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
