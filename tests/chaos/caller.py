"""A client that makes one call as it is planned, leaves where it is told to, and writes down what it saw."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.chaos.history import Call, Counts, Ending
from tests.chaos.numbered import MODEL, prompt
from tests.harness.raw_client import RawCall
from tests.harness.until import LOOK_EVERY_S

PATIENCE_S = 240.0
MAX_TOKENS = 64
# The system's buffer of a client that is going to stop reading: small, so that it is full soon.
STALLED_RECEIVE_BYTES = 32 * 1024


@dataclass(frozen=True)
class Manner:
    """How a client behaves."""

    stream: bool = True
    # Leave after so many events with content (0: nothing is read at all), and once `leaves_when` says so or after a while.
    leaves_at: int | None = None
    leaves_after_s: float = 0.0
    leaves_when: Callable[[], bool] | None = None
    # Waits so long after each event.
    slow_s: float = 0.0
    wants_usage: bool = False
    # Stops reading after so many events with content, until told to look again.
    stalls_after: int | None = None
    stalls_until: asyncio.Event | None = None


async def make(
    address: str,
    key: str,
    call: Call,
    manner: Manner,
    model: str = MODEL,
    opening: asyncio.Semaphore | None = None,
    **members: Any,
) -> Call:
    """Make the call and fill in its record. `opening` bounds how many connections are opened at once."""
    host, _, port = address.rpartition(":")
    body = {"model": model, "messages": [{"role": "user", "content": prompt(call.number)}], "max_tokens": MAX_TOKENS}
    if manner.stream:
        body |= {"stream": True}
        if manner.wants_usage:
            body |= {"stream_options": {"include_usage": True}}
    call.stream = manner.stream
    room = STALLED_RECEIVE_BYTES if manner.stalls_until is not None else None
    try:
        async with asyncio.timeout(PATIENCE_S):
            async with RawCall(host, int(port), key, body | members, opening=opening, receive_bytes=room) as raw:
                await _read(raw, call, manner)
    except TimeoutError:
        call.ending = Ending.HUNG
    except (ConnectionError, EOFError) as error:
        call.ending, call.code = Ending.LOST, type(error).__name__
    return call


async def _read(raw: RawCall, call: Call, manner: Manner) -> None:
    if manner.leaves_at == 0:
        await _leave(call, manner)
        return
    await raw.head()
    call.status = raw.status
    call.request_id = raw.headers.get("x-request-id", "")
    if raw.is_stream:
        await _read_stream(raw, call, manner)
        return
    value = json.loads(await raw.body(), parse_float=Decimal)
    if raw.status == 200:
        call.text = value["choices"][0]["message"]["content"]
        _note_usage(call, value["usage"])
        call.ending = Ending.ANSWERED
    else:
        call.code = value["error"]["code"]
        call.ending = Ending.REFUSED


async def _leave(call: Call, manner: Manner) -> None:
    await asyncio.sleep(manner.leaves_after_s)
    while manner.leaves_when is not None and not manner.leaves_when():
        await asyncio.sleep(LOOK_EVERY_S)
    call.ending = Ending.LEFT


async def _read_stream(raw: RawCall, call: Call, manner: Manner) -> None:
    seen = 0
    pieces: list[str] = []
    failed = done = False
    try:
        async for data in raw.events():
            if done or failed:
                call.ending, call.code = Ending.LOST, "something came after the end"
                return
            if data == "[DONE]":
                done = True
                continue
            frame = json.loads(data, parse_float=Decimal)
            if "error" in frame:
                failed, call.code = True, str(frame["error"]["code"])
                continue
            if frame.get("usage"):
                assert call.usage is None, f"call {call.number} saw usage twice"
                _note_usage(call, frame["usage"])
            piece = "".join(choice["delta"].get("content") or "" for choice in frame["choices"])
            if piece:
                pieces.append(piece)
                seen += 1
                if seen == manner.leaves_at:
                    await _leave(call, manner)
                    return
                if seen == manner.stalls_after and manner.stalls_until is not None:
                    await manner.stalls_until.wait()
                if manner.slow_s:
                    await asyncio.sleep(manner.slow_s)
        call.ending = Ending.ANSWERED if done else Ending.FAILED
        if not done and not failed:
            call.ending, call.code = Ending.LOST, "a proper end without [DONE] or an error"
    finally:
        call.text = "".join(pieces)
        # Money has its order: [DONE] promises a charge even if the connection breaks right after it.
        if done and call.ending is Ending.LOST and not call.code:
            call.ending = Ending.ANSWERED


def _note_usage(call: Call, usage: dict[str, Any]) -> None:
    call.usage = Counts(usage["prompt_tokens"], usage["completion_tokens"])
    if (cost := usage.get("cost")) is not None:
        call.cost_nanos = int(Decimal(cost).scaleb(9))
