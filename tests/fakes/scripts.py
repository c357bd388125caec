"""What a fake worker sends: steps, and builders of the answers that tests want most.

A script is a list of steps, or a function of the request that gives one. Bytes go out as they stand, head and all.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.canary_words import ANSWER

CREATED = 1_700_000_000


@dataclass(frozen=True)
class Pause:
    """Wait so many seconds: for a worker that is slow."""

    seconds: float


@dataclass(frozen=True)
class WaitFor:
    """Wait for a test's word."""

    event: asyncio.Event


@dataclass(frozen=True)
class Reset:
    """Tear the connection down with an RST."""


@dataclass(frozen=True)
class HalfClose:
    """Send a FIN, and go on reading."""


@dataclass(frozen=True)
class Close:
    """Close the connection in the usual way."""


@dataclass(frozen=True)
class Hang:
    """Nothing more, ever, until the other side leaves."""


Step = bytes | Pause | WaitFor | Reset | HalfClose | Close | Hang


@dataclass
class Received:
    """A request that the fake worker got."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    # The other side left before the script was at its end.
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)
    # The script is at its end.
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def json(self) -> Any:
        """The body, parsed; an empty object where it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return {}

    @property
    def model(self) -> str:
        """The model that was asked for, or an empty text."""
        value = self.json
        return str(value.get("model", "")) if isinstance(value, dict) else ""


Script = Sequence[Step] | Callable[[Received], Iterable[Step]]


def answer(status: int, body: bytes, content_type: str = "application/json", **headers: str) -> bytes:
    """A whole HTTP answer. Underscores in header names become hyphens."""
    lines = [f"HTTP/1.1 {status} Scripted", f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def json_answer(value: Any, status: int = 200, **headers: str) -> bytes:
    """A whole HTTP answer with a JSON body."""
    return answer(status, json.dumps(value).encode(), **headers)


SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
# The stream then ends with the connection.
SSE_HEAD_UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
DONE = "[DONE]"


def chunk(data: bytes) -> bytes:
    """One chunk of chunked transfer coding."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(payload: Any, end: str = "\n\n") -> bytes:
    """One server-sent event (in a chunk of its own); text goes out as it is, anything else as compact JSON."""
    text = payload if isinstance(payload, str) else json.dumps(payload, separators=(",", ":"))
    return chunk(f"data: {text}{end}".encode())


def frame(model: str, **members: Any) -> dict[str, Any]:
    """A stream's frame."""
    return {
        "id": f"chatcmpl-{ANSWER}",
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": model,
        **members,
    }


def delta(model: str, index: int = 0, finish_reason: str | None = None, **content: Any) -> dict[str, Any]:
    """A stream's frame with one choice."""
    return frame(model, choices=[{"index": index, "delta": content, "finish_reason": finish_reason}])


def usage(prompt: int, completion: int, cached: int | None = None) -> dict[str, Any]:
    """A usage object."""
    value: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if cached is not None:
        value["prompt_tokens_details"] = {"cached_tokens": cached}
    return value


def stream(*events: Any, done: bool = True, last_chunk: bool = True) -> list[Step]:
    """A stream of events, each as for `event`; steps among them go out as they are."""
    steps: list[Step] = [SSE_HEAD]
    for each in events:
        if isinstance(each, bytes | Pause | WaitFor | Reset | HalfClose | Close | Hang):
            steps.append(each)
        else:
            steps.append(event(each))
    if done:
        steps.append(event(DONE))
    if last_chunk:
        steps.append(LAST_CHUNK)
    return steps


def chat_stream(model: str, words: Sequence[str], counts: dict[str, Any] | None, **options: Any) -> list[Step]:
    """The usual stream: role, words, finish, usage (unless None), `[DONE]`."""
    events: list[Any] = [delta(model, role="assistant", content="")]
    events += [delta(model, content=word) for word in words]
    events.append(delta(model, finish_reason="stop"))
    if counts is not None:
        events.append(frame(model, choices=[], usage=counts))
    return stream(*events, **options)


def chat_whole(model: str, text: str, counts: dict[str, Any] | None, finish_reason: str = "stop") -> dict[str, Any]:
    """A whole chat answer."""
    message = {"role": "assistant", "content": text}
    value: dict[str, Any] = {
        "id": f"chatcmpl-{ANSWER}",
        "object": "chat.completion",
        "created": CREATED,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
    }
    if counts is not None:
        value["usage"] = counts
    return value
