"""Where bodies are read: small ones at once, large ones in a few threads, so that nobody waits for another's body."""

import asyncio
import threading
from typing import Any

import pytest

from services.edge import chat_request
from services.edge.body_reader import INLINE_BYTES, MAX_THREADS, BodyReader
from services.edge.openai_errors import Refused
from services.edge.openai_request import Bounds, InferenceRequest

SMALL = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
LARGE = SMALL + b" " * INLINE_BYTES


@pytest.mark.parametrize(("body", "here"), [(SMALL, True), (LARGE, False)], ids=["small", "large"])
async def test_only_large_bodies_leave_the_loop(body: bytes, here: bool) -> None:
    seen: list[threading.Thread] = []

    def check(values: dict[str, Any], members: dict[str, bytes], bounds: Bounds) -> InferenceRequest:
        seen.append(threading.current_thread())
        return chat_request.check(values, members, bounds)

    request = await BodyReader(Bounds()).read(body, check)
    assert request.model == "m"
    assert (seen == [threading.current_thread()]) is here


async def test_a_few_large_bodies_at_once_and_the_loop_goes_on() -> None:
    inside = threading.Semaphore(0)
    go = threading.Event()
    running: list[int] = []
    most = 0
    lock = threading.Lock()

    def check(values: dict[str, Any], members: dict[str, bytes], bounds: Bounds) -> InferenceRequest:
        nonlocal most
        with lock:
            running.append(1)
            most = max(most, len(running))
        inside.release()
        assert go.wait(10)
        with lock:
            running.pop()
        return chat_request.check(values, members, bounds)

    reader = BodyReader(Bounds())
    reads = [asyncio.create_task(reader.read(LARGE, check)) for _ in range(MAX_THREADS * 3)]
    for _ in range(MAX_THREADS):
        assert await asyncio.to_thread(inside.acquire, True, 10)
    # All threads are busy; a small body is read all the same.
    assert (await reader.read(SMALL, chat_request.check)).model == "m"
    go.set()
    assert len(await asyncio.gather(*reads)) == MAX_THREADS * 3
    assert most == MAX_THREADS


async def test_what_is_wrong_with_a_large_body_is_said_as_of_a_small_one() -> None:
    with pytest.raises(Refused, match="JSON"):
        await BodyReader(Bounds()).read(b"[" * INLINE_BYTES * 2, chat_request.check)
