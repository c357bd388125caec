"""Clients that stream without end through a fleet's public doors, and what became of each call.

It is as behind a load balancer: each edge is asked for `/readyz`, a client keeps to one edge while that says yes, and goes to
the other when it does not, cannot be reached, or answers 503; what the other one answers is the call's. What is asked of a call
afterwards is in `Call`.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import httpx

from tests.harness.sse import stream
from tests.harness.until import LOOK_EVERY_S

PATH = "/v1/chat/completions"
# How often an edge is asked whether it is ready, and how long it may think.
ASK_EVERY_S, ANSWER_WITHIN_S = 0.2, 5.0


@dataclass
class Call:
    """One call. Times are `time.monotonic`."""

    edge: str
    began_s: float
    ended_s: float = 0.0
    request_id: str = ""
    usage: dict[str, Any] | None = None
    # Empty where the client saw all of it, with [DONE].
    failure: str = ""
    # Nobody was reached, or all was refused before anything was streamed: another edge may be asked.
    is_unserved: bool = False

    def ran_at(self, moment_s: float) -> bool:
        """Whether it had begun and not ended then."""
        return self.began_s <= moment_s <= (self.ended_s or moment_s)


class Crowd:
    """`async with Crowd(...) as crowd:` runs until its end; `crowd.calls` has every call, those under way included."""

    def __init__(
        self, http: httpx.AsyncClient, urls: Sequence[str], key: str, body: dict[str, Any], clients: int
    ) -> None:
        self.calls: list[Call] = []
        # What went on to the other edge.
        self.turned_away: list[Call] = []
        self._http = http
        self._urls = urls
        self._headers = {"authorization": f"Bearer {key}"}
        self._body = body | {"stream": True}
        self._clients = clients
        self._stopping = False
        self._unready: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._balancing: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Crowd":
        self._balancing = [asyncio.create_task(self._balance(url)) for url in self._urls]
        self._tasks = [asyncio.create_task(self._client(index)) for index in range(self._clients)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks, *self._balancing)

    async def more(self, count: int, within_s: float = 60.0) -> None:
        """Wait until so many calls more, begun from now on, have come to their end well."""
        since_s = time.monotonic()
        async with asyncio.timeout(within_s):
            while sum(not call.failure and call.ended_s > 0 for call in self.since(since_s)) < count:
                await asyncio.sleep(LOOK_EVERY_S)

    def since(self, moment_s: float) -> list[Call]:
        """Those that began after a moment."""
        return [call for call in self.calls if call.began_s > moment_s]

    async def _client(self, index: int) -> None:
        # Not all at once.
        await asyncio.sleep(index * 0.01)
        ways = [self._urls[(index + each) % len(self._urls)] for each in (0, 1)]
        while not self._stopping:
            first, other = sorted(ways, key=self._unready.__contains__)
            call = await self._call(first)
            if call.is_unserved and other != first:
                self.calls.remove(call)
                self.turned_away.append(call)
                call = await self._call(other)
            if call.failure:
                await asyncio.sleep(LOOK_EVERY_S)

    async def _balance(self, url: str) -> None:
        while not self._stopping:
            try:
                is_ready = (await self._http.get(f"{url}/readyz", timeout=ANSWER_WITHIN_S)).status_code == 200
            except httpx.HTTPError:
                is_ready = False
            (self._unready.discard if is_ready else self._unready.add)(url)
            await asyncio.sleep(ASK_EVERY_S)

    async def _call(self, url: str) -> Call:
        call = Call(url, time.monotonic())
        # Marked before it is sent, so that whoever looks sees it.
        self.calls.append(call)
        try:
            seen = await stream(self._http, f"{url}{PATH}", self._body, self._headers)
        except (httpx.HTTPError, AssertionError) as error:
            call.failure = " <- ".join(map(repr, _causes(error)))
            call.is_unserved = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
        else:
            call.request_id = seen.headers.get("x-request-id", "")
            call.usage = seen.usage if seen.status == 200 else None
            call.is_unserved = seen.status == 503
            if not seen.done:
                call.failure = f"{seen.status} {seen.payloads[-1:]}"
        finally:
            call.ended_s = time.monotonic()
        return call


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
