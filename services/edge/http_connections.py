"""The edge's connections: where they come in, how many there may be, and what each may hold.

aiohttp as the edge uses it: bounded, strict and silent about itself. Its own words repeat what could not be read, so that none
of them reaches a client or a log. `app.py` imports it.
"""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any, Protocol, cast

import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from services.common.ids import uuid7
from services.edge.http_server import SERVER_NAME, problem_response
from services.edge.metrics import Metrics
from services.edge.openai_errors import BAD_HTTP, INTERNAL, TOO_MANY_CONNECTIONS, Problem

_log = structlog.get_logger(__name__)
SHUTDOWN_S = 1.0
BACKLOG = 1024
# What the system holds of an answer besides what is under way to the client. Without a bound it takes up to 4 MiB for each
# client that reads slowly, its worker is not slowed until then, and one that has stopped reading is noticed only then.
UNSENT_BYTES = 64 * 1024
MAX_HEAD_BYTES = 32 * 1024
_UNSENT_OPTION: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", None)
_OPTIONS: dict[str, Any] = {
    "access_log": None,
    # The end of a connection cancels its handler, so that a client that leaves is noticed at once.
    "handler_cancellation": True,
    # `body.py` decompresses, with a bound.
    "auto_decompress": False,
    "max_line_size": 8190,
    "max_field_size": 8190,
    "max_headers": 100,
    # How long a refused body is read on, so that its sender sees the answer instead of a reset.
    "lingering_time": 5.0,
    "shutdown_timeout": SHUTDOWN_S,
}


def runner(
    app: web.Application, metrics: Metrics, *, max_connections: int, idle_connection_s: float, stall_s: float
) -> web.AppRunner:
    """A runner for an application made by `application`. It closes a connection that takes longer than `idle_connection_s`
    from one request's end to the end of the next one's head, and cuts one that takes nothing of an answer for `stall_s`."""
    return _Runner(app, metrics, max_connections, stall_s, keepalive_timeout=idle_connection_s)


class Listening(Protocol):
    """What asyncio and uvloop both have for a server that listens."""

    @property
    def sockets(self) -> Sequence[Any]:
        """Where it listens."""

    def close(self) -> None:
        """Accept nobody any more; connections stay."""


async def listen(server: web.Server, host: str, port: int, given: Sequence[socket.socket]) -> Listening:
    """Listen at an address, or at the sockets that are given, which are ours from then on. OSError."""
    loop = asyncio.get_running_loop()
    if not given:
        return await loop.create_server(server, host, port, backlog=BACKLOG)
    return _Several([await loop.create_server(server, sock=each, backlog=BACKLOG) for each in given])


class _Several:
    """A name such as localhost has several addresses, and each its socket."""

    def __init__(self, parts: Sequence[Listening]) -> None:
        self._parts = parts

    @property
    def sockets(self) -> Sequence[Any]:
        return [each for part in self._parts for each in part.sockets]

    def close(self) -> None:
        for part in self._parts:
            part.close()


class _Protocol(RequestHandler):
    """A connection; answers what is not HTTP at all in the envelope too. A head has a bound as a whole, and a client that takes
    nothing of what waits for it for `stall_s` is cut, whatever it is that waits."""

    __slots__ = ("_head_bytes", "_own", "_stall")

    def __init__(self, manager: "_Server", **options: Any) -> None:
        super().__init__(manager, **options)
        self._head_bytes = 0
        # Until it is lost: aiohttp forgets its transport when it closes that, with what waits in it.
        self._own: asyncio.Transport | None = None
        self._stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self._manager
        assert isinstance(server, _Server)
        # uvloop's transports are of no class of asyncio's.
        self._own = cast(asyncio.Transport, transport)
        if server.is_full:
            # Nothing of it is read, and nobody waits for it to go.
            self._force_close = True
            server.metrics.connections_refused.inc()
            self._own.write(_refusal("503 Service Unavailable", TOO_MANY_CONNECTIONS))
            self._own.close()
            return
        # Whatever waits here pauses the writer, and is watched.
        self._own.set_write_buffer_limits(high=0)
        own = transport.get_extra_info("socket")
        if own is not None and _UNSENT_OPTION is not None:
            own.setsockopt(socket.IPPROTO_TCP, _UNSENT_OPTION, UNSENT_BYTES)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._own = None
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # aiohttp bounds each line of a head, and their number.
        waits_for_head = self._waiter is not None
        super().data_received(data)
        if not waits_for_head or self._messages:
            self._head_bytes = 0
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES and self._own is not None:
            _log.info("bad_http", status=400, error="HeadTooLong")
            self._own.write(_refusal("400 Bad Request", BAD_HTTP))
            self.force_close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unwatch()

    def _watch(self) -> None:
        server = self._manager
        if self._own is not None and isinstance(server, _Server):
            unsent = self._own.get_write_buffer_size()
            self._stall = asyncio.get_running_loop().call_later(server.stall_s, self._look, unsent)

    def _unwatch(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _look(self, before: int) -> None:
        if self._own is None:
            return
        if self._own.get_write_buffer_size() < before:
            self._watch()
        else:
            # Not one byte was taken. What waits is dropped, or it would wait until TCP gives up.
            self._own.abort()

    def log_exception(self, *_: Any, **known: Any) -> None:
        """aiohttp's own words repeat what could not be read, which may be a prompt."""
        _log.error("connection_failed", error=type(known.get("exc_info")).__name__)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun")
        _log.info("bad_http", status=status, error=type(exc).__name__)
        response = problem_response(
            BAD_HTTP if status < 500 else INTERNAL, {"server": SERVER_NAME, "x-request-id": uuid7()}
        )
        response.force_close()
        return response


class _Server(web.Server):
    """Makes our connections instead of aiohttp's, and not more than so many."""

    metrics: Metrics
    max_connections: int
    stall_s: float

    @property
    def is_full(self) -> bool:
        """At its bound of connections."""
        return len(self._connections) >= self.max_connections

    def __call__(self) -> RequestHandler:
        return _Protocol(self, loop=self._loop, **self._kwargs)


class _Runner(web.AppRunner):
    """Serves an application with our connections."""

    __slots__ = ("_max_connections", "_metrics", "_stall_s")

    def __init__(
        self, app: web.Application, metrics: Metrics, max_connections: int, stall_s: float, **options: Any
    ) -> None:
        super().__init__(app, handle_signals=False, **_OPTIONS, **options)
        self._metrics = metrics
        self._max_connections = max_connections
        self._stall_s = stall_s

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        # aiohttp has no other way to name the class of its connections.
        server.__class__ = _Server
        assert isinstance(server, _Server)
        server.metrics = self._metrics
        server.max_connections = self._max_connections
        server.stall_s = self._stall_s
        return server


def _refusal(status: str, problem: Problem) -> bytes:
    """The answer to a connection of which no request is read."""
    headers = {
        "content-type": "application/json",
        "content-length": str(len(problem.body())),
        "connection": "close",
        "server": SERVER_NAME,
        "x-request-id": uuid7(),
    } | problem.headers()
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + problem.body()
