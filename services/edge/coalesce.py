"""Concurrent callers of one thing share one call. Edge modules that ask other services import it."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """Runs at most one call per name at a time; whoever asks meanwhile gets its outcome.

    A caller that is cancelled does not cancel the call: others wait for it."""

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[T]] = {}

    def __len__(self) -> int:
        return len(self._running)

    async def get(self, name: Hashable, call: Callable[[], Awaitable[T]]) -> T:
        """The outcome of the call that runs under this name, or of a new one."""
        task = self._running.get(name)
        if task is None:
            task = asyncio.get_running_loop().create_task(_run(call), name="shared-call")
            self._running[name] = task
            task.add_done_callback(lambda done: self._ended(name, done))
        return await asyncio.shield(task)

    def _ended(self, name: Hashable, task: asyncio.Task[Any]) -> None:
        self._running.pop(name, None)
        if not task.cancelled():
            # Every caller may have gone; the exception is theirs and is not to be reported as lost.
            task.exception()


async def _run(call: Callable[[], Awaitable[T]]) -> T:
    return await call()
