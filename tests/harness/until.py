"""Waiting for a condition, which is what tests do instead of sleeping."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

LOOK_EVERY_S = 0.02


def until(look: Callable[[], Value | None], what: str, timeout_s: float = 30.0) -> Value:
    """The first truthy answer of `look`. AssertionError that names `what` if none comes in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        if found := look():
            return found
        assert time.monotonic() < deadline, f"not seen within {timeout_s:g} s: {what}"
        time.sleep(LOOK_EVERY_S)


async def until_async(look: Callable[[], Value | None], what: str, timeout_s: float = 30.0) -> Value:
    """The same from a coroutine; `look` runs in a thread, so that it may wait for a process."""
    deadline = time.monotonic() + timeout_s
    while True:
        if found := await asyncio.to_thread(look):
            return found
        assert time.monotonic() < deadline, f"not seen within {timeout_s:g} s: {what}"
        await asyncio.sleep(LOOK_EVERY_S)
