"""Closed-loop load on an OpenAI-shaped address, and the CPU that the named processes spent on it.

    python benchmarks/load.py http://127.0.0.1:8080 --key KEY --clients 16 --requests 4000 --pid PID --pid PID
    python benchmarks/load.py http://127.0.0.1:8080 --key KEY --clients 200 --requests 600 --stream --pid PID

Each client sends its next request when it has the whole answer to the last. Prints one JSON object. CPU (user and system,
children included) says what a request costs whatever else the machine does; latencies compare only within one run.
"""

import argparse
import asyncio
import json
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any
from urllib.parse import urlsplit

import psutil
import uvloop

PATH = "/v1/chat/completions"
PROMPT = "Explain the path of a request. " * 8
SAMPLE_RSS_EVERY_S = 0.25
REQUEST_TIMEOUT_S = 300.0
# What is kept of an answer whose length is not told: its usage or its end is looked for there.
TAIL_BYTES = 2048
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def family(pids: Sequence[int]) -> list[psutil.Process]:
    """The processes and everything that they started."""
    found = {}
    for pid in pids:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            found[process.pid] = process
    return list(found.values())


def cpu_s(pids: Sequence[int]) -> float:
    """CPU seconds that they have used up to now."""
    times = [process.cpu_times() for process in family(pids)]
    return sum(one.user + one.system for one in times)


def rss_mib(pids: Sequence[int]) -> float:
    """Memory that they hold now."""
    return sum(process.memory_info().rss for process in family(pids)) / 2**20


@dataclass
class Figures:
    """What was measured."""

    latency_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    events: int = 0
    errors: list[str] = field(default_factory=list)


class Load:
    """Clients that share one budget: so many requests, and where `seconds` is given none that begins later."""

    def __init__(
        self,
        url: str,
        keys: Sequence[str],
        body: dict[str, Any],
        requests: int,
        seconds: float = float("inf"),
        trust: ssl.SSLContext | None = None,
    ) -> None:
        """`trust` is needed for https."""
        where = urlsplit(url)
        self._host, self._port = where.hostname or "127.0.0.1", where.port or 80
        self._trust = trust
        text = json.dumps(body).encode()
        heads = (
            f"POST {PATH} HTTP/1.1\r\nhost: {where.netloc}\r\nauthorization: Bearer {key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
            for key in keys
        )
        self._requests = cycle([head.encode() + text for head in heads])
        self._left = requests
        self._until = time.perf_counter() + seconds
        self._idle: list[Connection] = []
        self.figures = Figures()

    @property
    def more(self) -> bool:
        """Whether another request may begin."""
        return self._left > 0 and time.perf_counter() < self._until

    async def closed(self, clients: int) -> None:
        """Closed loop: each client sends its next request when it has the whole answer to the last."""

        async def client() -> None:
            while self.more:
                await self.request()

        await asyncio.gather(*(client() for _ in range(clients)))
        await self._close()

    async def paced(self, per_s: float) -> None:
        """Open loop: one request after another begins at its time, however long the earlier ones take."""
        began, sent = time.perf_counter(), 0
        async with asyncio.TaskGroup() as asking:
            while self.more:
                await asyncio.sleep(max(0.0, began + sent / per_s - time.perf_counter()))
                asking.create_task(self.request())
                sent += 1
                # Each takes its part of the budget before the next one looks.
                await asyncio.sleep(0)
        await self._close()

    async def request(self) -> None:
        """One request over a connection that is free, or a new one; what came of it goes to the figures."""
        self._left -= 1
        began = time.perf_counter()
        connection = self._free()
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                connection = connection or await asyncio.open_connection(
                    self._host, self._port, ssl=self._trust, limit=2**20
                )
                fault = await self._ask(*connection, began)
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            fault = type(error).__name__
            if connection is not None:
                connection[1].close()
        else:
            self._idle.append(connection)
        if fault is None:
            self.figures.latency_s.append(time.perf_counter() - began)
        else:
            self.figures.errors.append(fault)

    def _free(self) -> Connection | None:
        """One that waits and that the other side has not closed."""
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return None

    async def _close(self) -> None:
        for _, writer in self._idle:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in self._idle), return_exceptions=True)
        self._idle.clear()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, began: float) -> str | None:
        """One request; what is wrong with its answer, or None."""
        writer.write(next(self._requests))
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        _, has_length, rest = head.partition(b"content-length:")
        if has_length:
            tail = await reader.readexactly(int(rest.split(b"\r\n", 1)[0]))
        else:
            tail = await self._read_chunks(reader, began)
        streamed = b"text/event-stream" in head
        good = tail.rstrip().endswith(b"[DONE]") if streamed else b'"usage"' in tail
        if head.startswith(b"http/1.1 200") and good:
            return None
        return f"{head.split(b' ', 2)[1].decode()} {tail[-200:].decode(errors='replace')}"

    async def _read_chunks(self, reader: asyncio.StreamReader, began: float) -> bytes:
        """The end of a chunked body; events are counted and the first one is timed."""
        tail, seen_first = b"", False
        while True:
            size = int(await reader.readline(), 16)
            data = (await reader.readexactly(size + 2))[:-2]
            if size == 0:
                return tail
            if not seen_first:
                self.figures.first_s.append(time.perf_counter() - began)
                seen_first = True
            self.figures.events += data.count(b"data: ")
            tail = (tail + data)[-TAIL_BYTES:]


def body_of(model: str, *, stream: bool, prompt: str = PROMPT) -> dict[str, Any]:
    """What is sent."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 64,
        "stream": stream,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    return body


async def measure(
    url: str,
    key: str | Sequence[str],
    *,
    model: str,
    clients: int,
    requests: int,
    stream: bool,
    pids: Sequence[int],
    seconds: float = float("inf"),
    per_s: float | None = None,
    trust: ssl.SSLContext | None = None,
) -> dict[str, Any]:
    """Run a load and answer its row. With `per_s` requests begin at that rate, and `clients` says nothing; several keys take
    turns."""
    keys = [key] if isinstance(key, str) else key
    load = Load(url, keys, body_of(model, stream=stream), requests, seconds, trust)
    idle_mib, before_s, began, own_s = rss_mib(pids), cpu_s(pids), time.perf_counter(), time.process_time()
    memory = PeakMemory(pids)
    async with memory:
        await (load.closed(clients) if per_s is None else load.paced(per_s))
    wall_s, used_s = time.perf_counter() - began, cpu_s(pids) - before_s
    figures = load.figures
    done = len(figures.latency_s)
    return {
        "stream": stream,
        "clients": clients,
        "requests": done,
        "errors": len(figures.errors),
        "first_errors": figures.errors[:3],
        "requests_per_s": round(done / wall_s, 1),
        "cpu_ms_per_request": round(used_s * 1e3 / max(done, 1), 3),
        "cpu_us_per_event": round(used_s * 1e6 / figures.events, 1) if figures.events else None,
        "events_per_s": round(figures.events / wall_s, 1),
        "p50_ms": share_ms(figures.latency_s, 50),
        "p99_ms": share_ms(figures.latency_s, 99),
        "first_p50_ms": share_ms(figures.first_s, 50),
        "first_p99_ms": share_ms(figures.first_s, 99),
        "rss_idle_mib": round(idle_mib, 1),
        "rss_peak_mib": round(memory.peak_mib, 1),
        # Near one: the load itself was the bound, whatever it loaded.
        "load_cores": round((time.process_time() - own_s) / wall_s, 2),
    }


class PeakMemory:
    """The most that the processes held together while the block ran."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self.peak_mib = rss_mib(pids)

    async def __aenter__(self) -> None:
        self._looking = asyncio.create_task(self._look())

    async def __aexit__(self, *_: object) -> None:
        self._looking.cancel()
        self.peak_mib = max(self.peak_mib, rss_mib(self._pids))

    async def _look(self) -> None:
        while True:
            self.peak_mib = max(self.peak_mib, rss_mib(self._pids))
            await asyncio.sleep(SAMPLE_RSS_EVERY_S)


def share_ms(samples_s: list[float], percent: int) -> float | None:
    """A percentile, in milliseconds."""
    if not samples_s:
        return None
    ordered = sorted(samples_s)
    return round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] * 1e3, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description="closed-loop load")
    parser.add_argument("url")
    parser.add_argument("--key", required=True)
    parser.add_argument("--model", default="bench/model")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--pid", type=int, action="append", default=[])
    args = parser.parse_args()
    row = measure(
        args.url,
        args.key,
        model=args.model,
        clients=args.clients,
        requests=args.requests,
        stream=args.stream,
        pids=args.pid,
    )
    print(json.dumps(uvloop.run(row)))


if __name__ == "__main__":
    main()
