"""Where a request is made ready: long conversations beside the event loop. Imported by the Triton transport.

A template takes some 50 microseconds a message and more on a busy machine. A short chat is rendered at once; one that may be
long in a thread, so that nobody else's stream waits for it. How much one rendering may do is bounded in `template_budget.py`.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

# Within these are at most some 150 messages, a few milliseconds.
MAX_BYTES_ON_THE_LOOP = 4096

Ready = TypeVar("Ready")


async def beside_the_loop(members: Sequence[tuple[str, bytes]], prepare: Callable[[], Ready]) -> Ready:
    """What `prepare` makes of a client's `members`; it raises what `prepare` raises."""
    if sum(len(value) for _, value in members) <= MAX_BYTES_ON_THE_LOOP:
        return prepare()
    return await asyncio.to_thread(prepare)
