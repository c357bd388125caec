"""Closed-loop load on an OpenAI-shaped address, and the CPU that the named processes spent on it.

    python benchmarks/load.py http://127.0.0.1:8080 --key KEY --clients 16 --requests 4000 --pid PID --pid PID
    python benchmarks/load.py http://127.0.0.1:8080 --key KEY --clients 200 --requests 600 --stream --pid PID

Each client sends its next request when it has the whole answer to the last. Prints one JSON object. CPU (user and system,
children included) says what a request costs whatever else the machine does; latencies compare only within one run.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import psutil
import uvloop

PATH = "/v1/chat/completions"
PROMPT = "Explain the path of a request. " * 8
SAMPLE_RSS_EVERY_S = 0.25
READ_BYTES = 256 * 1024


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
    """A number of clients that share one budget of requests."""

    def __init__(self, url: str, key: str, body: dict[str, Any], requests: int) -> None:
        where = urlsplit(url)
        self._host, self._port = where.hostname or "127.0.0.1", where.port or 80
        text = json.dumps(body).encode()
        head = (
            f"POST {PATH} HTTP/1.1\r\nhost: {where.netloc}\r\nauthorization: Bearer {key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
        )
        self._request = head.encode() + text
        self._left = requests
        self.figures = Figures()

    async def client(self) -> None:
        """One client, until the budget is used up."""
        connection = None
        while self._left > 0:
            self._left -= 1
            began = time.perf_counter()
            try:
                connection = connection or await asyncio.open_connection(self._host, self._port, limit=2**20)
                fault = await self._ask(*connection, began)
            except (OSError, asyncio.IncompleteReadError) as error:
                fault, connection = type(error).__name__, None
            if fault is None:
                self.figures.latency_s.append(time.perf_counter() - began)
            else:
                self.figures.errors.append(fault)
        if connection is not None:
            connection[1].close()
            await connection[1].wait_closed()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, began: float) -> str | None:
        """One request; what is wrong with its answer, or None."""
        writer.write(self._request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        _, has_length, rest = head.partition(b"content-length:")
        if has_length:
            body = await reader.readexactly(int(rest.split(b"\r\n", 1)[0]))
            good = b'"usage"' in body
        else:
            body = await self._read_chunks(reader, began)
            good = body.rstrip().endswith(b"[DONE]")
        if head.startswith(b"http/1.1 200") and good:
            return None
        return f"{head.split(b' ', 2)[1].decode()} {body[-200:].decode(errors='replace')}"

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
            tail = (tail + data)[-512:]


async def measure(
    url: str, key: str, *, model: str, clients: int, requests: int, stream: bool, pids: Sequence[int]
) -> dict[str, Any]:
    """Run a load and answer its row."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": 64,
        "stream": stream,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    load = Load(url, key, body, requests)
    idle_mib, before_s, began = rss_mib(pids), cpu_s(pids), time.perf_counter()
    peak = asyncio.create_task(_peak_rss_mib(pids))
    await asyncio.gather(*(load.client() for _ in range(clients)))
    wall_s, used_s = time.perf_counter() - began, cpu_s(pids) - before_s
    peak.cancel()
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
        "p50_ms": _share_ms(figures.latency_s, 50),
        "p99_ms": _share_ms(figures.latency_s, 99),
        "first_p50_ms": _share_ms(figures.first_s, 50),
        "first_p99_ms": _share_ms(figures.first_s, 99),
        "rss_idle_mib": round(idle_mib, 1),
        "rss_peak_mib": round(max(idle_mib, rss_mib(pids), *(_peaks or [0.0])), 1),
    }


_peaks: list[float] = []


async def _peak_rss_mib(pids: Sequence[int]) -> None:
    _peaks.clear()
    while True:
        _peaks.append(rss_mib(pids))
        await asyncio.sleep(SAMPLE_RSS_EVERY_S)


def _share_ms(samples_s: list[float], percent: int) -> float | None:
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
