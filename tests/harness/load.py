"""Clients that go on asking while services die and come back, and a tally of what they were promised.

An answer counts as acknowledged when the client saw it whole: a body with usage, or a stream with usage and [DONE].
"""

import asyncio
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import httpx

from tests.harness.sse import stream
from tests.harness.until import LOOK_EVERY_S

PATH = "/v1/chat/completions"


@dataclass
class Tally:
    """Usage of every acknowledged answer by request id, and how many were not."""

    acknowledged: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: int = 0
    in_flight: int = 0


class Load:
    """`async with Load(http, body, clients=10) as load:` runs until its end; half of the clients stream."""

    def __init__(self, http: httpx.AsyncClient, body: dict[str, Any], clients: int) -> None:
        self.tally = Tally()
        self._http = http
        self._body = body
        self._clients = clients
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Load":
        self._tasks = [asyncio.create_task(self._client(bool(index % 2))) for index in range(self._clients)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    async def acknowledged(self, more: int, timeout_s: float = 60.0) -> None:
        """Wait until so many more answers were acknowledged. TimeoutError if they do not come."""
        wanted = len(self.tally.acknowledged) + more
        async with asyncio.timeout(timeout_s):
            while len(self.tally.acknowledged) < wanted:
                await asyncio.sleep(LOOK_EVERY_S)

    async def _client(self, streams: bool) -> None:
        while not self._stop.is_set():
            self.tally.in_flight += 1
            try:
                found = await (self._stream() if streams else self._whole())
            except httpx.HTTPError:
                found = None
            finally:
                self.tally.in_flight -= 1
            if found is None:
                self.tally.failed += 1
                # A service is down; do not spin.
                await asyncio.sleep(LOOK_EVERY_S)
                continue
            request_id, usage = found
            assert request_id not in self.tally.acknowledged, "a request id came twice"
            self.tally.acknowledged[request_id] = usage

    async def _stream(self) -> tuple[str, dict[str, Any]] | None:
        seen = await stream(self._http, PATH, self._body | {"stream": True})
        return (seen.headers["x-request-id"], seen.usage) if seen.done and seen.usage else None

    async def _whole(self) -> tuple[str, dict[str, Any]] | None:
        answer = await self._http.post(PATH, json=self._body)
        return (answer.headers["x-request-id"], answer.json()["usage"]) if answer.status_code == 200 else None
