"""Background tasks that cannot be lost. Anybody may import it.

The event loop keeps only weak references to tasks; a set owned by somebody keeps them alive, logs what they raise, and can
be waited for or cancelled as a whole.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import structlog

_log = structlog.get_logger(__name__)


class TaskSet:
    """Tasks that belong to one owner."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(set(self._tasks))

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task; an exception that it raises is logged, not lost."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def join(self, timeout_s: float) -> bool:
        """Wait until all have ended; False if some have not by then."""
        if not self._tasks:
            return True
        _, pending = await asyncio.wait(set(self._tasks), timeout=timeout_s)
        return not pending

    async def cancel(self) -> None:
        """Cancel all and wait until they have ended."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("task_failed", task=task.get_name(), error=type(error).__name__, exc_info=error)
