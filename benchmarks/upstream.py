"""A worker for measuring: it answers OpenAI's protocol from prepared bytes, so that what is left is the gateway's cost.

    python benchmarks/upstream.py PORT --events 64 --gap-ms 20

A whole answer comes at once; a stream sends its events one gap apart, then the finish, usage and [DONE]. A prompt that holds
"[30 events, 1000 ms apart]" has its own pace. Prints READY when it listens. One process and one thread; a request costs it a
few microseconds.
"""

import argparse
import asyncio
import json
import re
from typing import Any, cast

import uvloop

MODEL = "bench/model"
PROMPT_TOKENS = 50
_PACE = re.compile(rb"\[(\d{1,5}) events, (\d{1,5}) ms apart\]")


def pace_text(events: int, gap_ms: int) -> str:
    """What a prompt says to have its own pace; prompts reach a worker through every gateway as they are."""
    return f"[{events} events, {gap_ms} ms apart]"


def pace_in(body: bytes, events: int, gap_s: float) -> tuple[int, float]:
    """(events, gap in seconds) that a request asks for, else those given."""
    found = _PACE.search(body)
    return (int(found[1]), int(found[2]) / 1000) if found else (events, gap_s)


def head(kind: str, rest: str) -> bytes:
    """A response's status line and headers."""
    return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{rest}\r\n\r\n".encode()


def whole(value: dict[str, Any]) -> bytes:
    """A complete response with a JSON body."""
    body = json.dumps(value, separators=(",", ":")).encode()
    return head("application/json", f"content-length: {len(body)}") + body


def chunk(payload: str) -> bytes:
    """One event as one chunk of a chunked body."""
    data = f"data: {payload}\n\n".encode()
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


class Answers:
    """All bytes that are ever sent, prepared once."""

    def __init__(self, events: int) -> None:
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": events, "total_tokens": PROMPT_TOKENS + events}
        message = {"role": "assistant", "content": "measured " * 32}
        self.models = whole({"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1}]})
        self.completion = whole(
            self._frame(
                "chat.completion", choices=[{"index": 0, "message": message, "finish_reason": "stop"}], usage=usage
            )
        )
        self.stream_head = head("text/event-stream", "transfer-encoding: chunked")
        self.piece = chunk(self._event({"index": 0, "delta": {"content": "measured "}, "finish_reason": None}))
        ending = [
            self._event({"index": 0, "delta": {}, "finish_reason": "stop"}),
            json.dumps(self._frame("chat.completion.chunk", choices=[], usage=usage)),
            "[DONE]",
        ]
        self.stream_end = b"".join(map(chunk, ending)) + b"0\r\n\r\n"

    def _event(self, choice: dict[str, Any]) -> str:
        return json.dumps(self._frame("chat.completion.chunk", choices=[choice]), separators=(",", ":"))

    @staticmethod
    def _frame(kind: str, **more: Any) -> dict[str, Any]:
        return {"id": "chatcmpl-bench", "object": kind, "created": 1, "model": MODEL, **more}


class Connection(asyncio.Protocol):
    """One client: requests one after another, answered in order."""

    def __init__(self, answers: Answers, events: int, gap_s: float) -> None:
        self._answers = answers
        self._events = events
        self._gap_s = gap_s
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._streams: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are of no class of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        for stream in self._streams:
            stream.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (request := self._next_request()) is not None:
            self._answer(*request)

    def _next_request(self) -> tuple[bytes, bytes] | None:
        """Head (lower case) and body of a request that has come whole."""
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return None
        lines = bytes(self._received[:end]).lower()
        if b"transfer-encoding: chunked" in lines:
            return self._next_chunked(lines, end + 4)
        _, found, rest = lines.partition(b"content-length:")
        length = int(rest.split(b"\r\n", 1)[0]) if found else 0
        if len(self._received) < end + 4 + length:
            return None
        body = bytes(self._received[end + 4 : end + 4 + length])
        del self._received[: end + 4 + length]
        return lines, body

    def _next_chunked(self, lines: bytes, start: int) -> tuple[bytes, bytes] | None:
        body, at = b"", start
        while (line_end := self._received.find(b"\r\n", at)) >= 0:
            size = int(self._received[at:line_end].split(b";")[0], 16)
            if len(self._received) < line_end + 4 + size:
                return None
            body += self._received[line_end + 2 : line_end + 2 + size]
            at = line_end + 4 + size
            if size == 0:
                del self._received[:at]
                return lines, body
        return None

    def _answer(self, lines: bytes, body: bytes) -> None:
        assert self._transport is not None
        if lines.startswith(b"get") or not body:  # some gateways look at a worker with an empty POST
            self._transport.write(self._answers.models)
        elif json.loads(body).get("stream"):
            stream = asyncio.get_running_loop().create_task(self._stream(*pace_in(body, self._events, self._gap_s)))
            self._streams.add(stream)
            stream.add_done_callback(self._streams.discard)
        else:
            self._transport.write(self._answers.completion)

    async def _stream(self, events: int, gap_s: float) -> None:
        assert self._transport is not None
        self._transport.write(self._answers.stream_head)
        for _ in range(events):
            self._transport.write(self._answers.piece)
            await asyncio.sleep(gap_s)
        self._transport.write(self._answers.stream_end)


async def serve(port: int, events: int, gap_s: float) -> None:
    """Listen until the process is ended."""
    answers = Answers(events)
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(answers, events, gap_s), "127.0.0.1", port, backlog=1024
    )
    print("READY", flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description="a worker for measuring")
    parser.add_argument("port", type=int)
    parser.add_argument("--events", type=int, default=64)
    parser.add_argument("--gap-ms", type=int, default=20)
    args = parser.parse_args()
    uvloop.run(serve(args.port, args.events, args.gap_ms / 1000))


if __name__ == "__main__":
    main()
