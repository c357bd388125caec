"""Questions to the store beside its writer, in threads of their own. Servicers use it.

Each thread has its own connection, so that neither the event loop nor the writer waits for a question. The number of questions
that wait is bounded.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog

from services.billing.store.port import Reader, Store, StoreError
from services.common.errors import ServiceError, Unavailable

T = TypeVar("T")
_log = structlog.get_logger(__name__)


class Reading:
    """A number of threads that read."""

    def __init__(self, store: Store, *, threads: int, max_waiting: int) -> None:
        self._store = store
        self._max_waiting = max_waiting
        self._waiting = 0
        self._local = threading.local()
        self._readers: list[Reader] = []
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="billing-reader")

    async def ask(self, question: Callable[[Reader], T]) -> T:
        """The answer. Unavailable where too many wait already or the database cannot be read."""
        if self._waiting >= self._max_waiting:
            raise Unavailable("too many questions wait for billing's database")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._answer, question)
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """Finish what waits and close the connections."""
        await asyncio.to_thread(self._threads.shutdown)
        for reader in self._readers:
            reader.close()

    def _answer(self, question: Callable[[Reader], T]) -> T:
        try:
            reader: Reader | None = getattr(self._local, "reader", None)
            if reader is None:
                reader = self._local.reader = self._store.reader()
                self._readers.append(reader)
            return question(reader)
        except ServiceError:
            raise
        except self._store.errors as error:
            _log.error("question_not_answered", error=str(error))
            raise StoreError("billing's database cannot be read now") from error
