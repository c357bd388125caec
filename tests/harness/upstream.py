"""A scripted worker that speaks OpenAI's protocol: it does what the test's `Script` says, and counts what it did.

Runs in a thread with a loop of its own, so that tests of any kind can use one for as long as they like.
"""

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from aiohttp import web

from tests.fakes.canary_words import ANSWER

MODEL = "acme/model-1"


@dataclass(frozen=True)
class Script:
    """How the worker answers from now on."""

    pieces: tuple[str, ...] = ("Hello", " ", "world", "!")
    prompt_tokens: int = 12
    completion_tokens: int = 5
    cached_tokens: int | None = None
    reports_usage: bool = True
    gap_s: float = 0.0
    # Cut the connection after so many pieces, without a finish.
    dies_after: int | None = None
    # Wait in front of the first piece, and of a whole answer, until `Upstream.go()`.
    held_back: bool = False
    # The same after so many pieces of a stream.
    pauses_after: int | None = None
    # An HTTP status to refuse with, and its body.
    refusal: tuple[int, dict[str, Any]] | None = None

    @property
    def usage(self) -> dict[str, Any]:
        """The usage object that it reports."""
        made: dict[str, Any] = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }
        if self.cached_tokens is not None:
            made["prompt_tokens_details"] = {"cached_tokens": self.cached_tokens}
        return made


@dataclass
class Seen:
    """What the worker saw."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    completed: int = 0
    at_once: int = 0
    most_at_once: int = 0


class Upstream:
    """`with Upstream() as upstream:` gives one that answers at `upstream.endpoint`."""

    def __init__(self) -> None:
        self.script = Script()
        self.seen = Seen()
        self.port = 0
        self.listens_on = "127.0.0.1"
        self._going = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="upstream")

    @property
    def endpoint(self) -> str:
        """What a registration names."""
        return f"http://{self.listens_on}:{self.port}/v1"

    def registration(self, worker_id: str = "scripted-1", **more: Any) -> dict[str, Any]:
        """A registration of this worker; its check asks for metadata only, so that counts stay the test's own."""
        return {
            "worker_id": worker_id,
            "worker_type": "test",
            "runtime": "openai-compatible",
            "runtime_endpoint": self.endpoint,
            "supported_models": [MODEL],
            "runtime_config": {"transport": "openai", "check": "metadata", **more},
        }

    def plays(self, script: Script) -> None:
        """Answer by this script from now on, and count from nothing."""
        self.script = script
        self.seen = Seen()
        self._in_loop(self._going.clear)

    def go(self) -> None:
        """Let answers that were held back go on."""
        self._in_loop(self._going.set)

    def _in_loop(self, change: Callable[[], None]) -> None:
        assert self._loop is not None, "not started"
        self._loop.call_soon_threadsafe(change)

    def __enter__(self) -> "Upstream":
        started = threading.Event()
        self._started = started
        self._thread.start()
        assert started.wait(10), "the upstream did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.go()
        self._in_loop(self._stop.set)
        self._thread.join(10)
        if self._failure is not None and error is None:
            raise self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_post("/v1/chat/completions", self._chat)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, self.listens_on, 0)
        await site.start()
        self.port = runner.addresses[0][1]
        self._started.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model", "created": 1}]})

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response()

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        seen = self.seen
        seen.at_once += 1
        seen.most_at_once = max(seen.most_at_once, seen.at_once)
        try:
            return await self._answer(request, seen)
        finally:
            seen.at_once -= 1

    async def _answer(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        script = self.script
        body = await request.json()
        seen.bodies.append(body)
        seen.headers.append(dict(request.headers))
        if script.refusal is not None:
            return web.json_response(script.refusal[1], status=script.refusal[0])
        if script.held_back:
            await self._going.wait()
        if not body.get("stream"):
            seen.completed += 1
            return web.json_response(_whole(script))
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for index, piece in enumerate(script.pieces):
            if index == script.dies_after:
                assert request.transport is not None
                request.transport.abort()
                return response
            if index == script.pauses_after:
                await self._going.wait()
            await response.write(_sse({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]}))
            if script.gap_s:
                await asyncio.sleep(script.gap_s)
        await response.write(_sse({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
        if script.reports_usage and (body.get("stream_options") or {}).get("include_usage"):
            await response.write(_sse({"choices": [], "usage": script.usage}))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        seen.completed += 1
        return response


def _whole(script: Script) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "id": f"chatcmpl-{ANSWER}",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "".join(script.pieces)}, "finish_reason": "stop"}
        ],
    }
    if script.reports_usage:
        answer["usage"] = script.usage
    return answer


def _sse(part: dict[str, Any]) -> bytes:
    frame = {"id": f"chatcmpl-{ANSWER}", "object": "chat.completion.chunk", "created": 1, "model": MODEL} | part
    return f"data: {json.dumps(frame)}\n\n".encode()
