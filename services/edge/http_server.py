"""aiohttp as the edge uses it: bounded, strict, silent about itself, and every error in OpenAI's envelope.

Here is the one place where what was raised becomes an answer. aiohttp's own texts never reach a client (they may repeat
headers), nor its log (they would repeat keys). `app.py` imports it.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import structlog
from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.web_protocol import RequestHandler

from services.common.ids import uuid7
from services.edge import arrival as arrivals
from services.edge.metrics import Metrics
from services.edge.openai_errors import (
    BAD_HTTP,
    INTERNAL,
    METHOD_NOT_ALLOWED,
    TOO_MANY_CONNECTIONS,
    UNKNOWN_URL,
    Problem,
    Refused,
    invalid,
)

_log = structlog.get_logger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SERVER_NAME = "speedinfer"
SHUTDOWN_S = 1.0
BACKLOG = 1024
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


def problem_response(problem: Problem, headers: dict[str, str] | None = None) -> web.Response:
    """A problem as an HTTP answer."""
    return web.Response(
        status=problem.status,
        body=problem.body(),
        content_type="application/json",
        headers=(headers or {}) | problem.headers(),
    )


def runner(app: web.Application, metrics: Metrics, *, max_connections: int, idle_connection_s: float) -> web.AppRunner:
    """A runner for an application made by `application`. It closes a connection that takes longer than `idle_connection_s`
    from one request's end to the end of the next one's head."""
    return _Runner(app, metrics, max_connections, keepalive_timeout=idle_connection_s)


@dataclass(slots=True)
class Keeping:
    """Whether connections are kept after an answer. Not by a process that leaves: each answer says so."""

    connections: bool = True


def application(metrics: Metrics, keeping: Keeping, unknown_url: Problem = UNKNOWN_URL) -> web.Application:
    """An application whose every answer has its ids and whose every error is in the envelope."""

    async def close_if_leaving(_request: web.Request, response: web.StreamResponse) -> None:
        if not keeping.connections:
            # aiohttp has put its headers together already, but has not sent them.
            response.force_close()
            response.headers["connection"] = "close"

    app = web.Application(middlewares=[_envelope(metrics, unknown_url)])
    app.on_response_prepare.append(_sign)
    app.on_response_prepare.append(close_if_leaving)
    return app


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


async def expect(request: web.Request) -> None:
    """Say `100 Continue` where a client waits for it; ignore expectations that HTTP does not know."""
    if request.headers.get("expect", "").lower() == "100-continue" and request.version >= (1, 1):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


def _envelope(metrics: Metrics, unknown_url: Problem) -> Any:
    @web.middleware
    async def envelope(request: web.Request, handler: Handler) -> web.StreamResponse:
        arrival = arrivals.note(request, asyncio.get_running_loop().time())
        status = 499
        try:
            response = await _answer(request, handler, arrival, unknown_url)
            status = response.status
            return response
        finally:
            resource = request.match_info.route.resource
            route = resource.canonical if resource is not None else "unmatched"
            metrics.requests.labels(route, str(status), arrival.code).inc()
            _log.info(
                "request",
                request_id=arrival.request_id,
                route=route,
                status=status,
                code=arrival.code or None,
                key_id=arrival.key_id or None,
                model=arrival.model or None,
                worker_id=arrival.worker_id or None,
                prompt_tokens=arrival.prompt_tokens,
                completion_tokens=arrival.completion_tokens,
                ms=round((asyncio.get_running_loop().time() - arrival.started_s) * 1000, 1),
            )

    return envelope


async def _answer(
    request: web.Request, handler: Handler, arrival: arrivals.Arrival, unknown_url: Problem
) -> web.StreamResponse:
    if not _is_unambiguous(request):
        response = problem_response(BAD_HTTP)
        response.force_close()
        arrival.code = BAD_HTTP.cause
        return response
    try:
        return await handler(request)
    except Refused as refused:
        arrival.code = refused.problem.cause
        return problem_response(refused.problem, refused.headers)
    except web.HTTPNotFound:
        problem = unknown_url
    except web.HTTPMethodNotAllowed as error:
        arrival.code = METHOD_NOT_ALLOWED.cause
        return problem_response(METHOD_NOT_ALLOWED, {"allow": ", ".join(sorted(error.allowed_methods))})
    except web.HTTPException as error:
        problem = INTERNAL if error.status >= 500 else invalid(error.reason)
    except Exception as error:
        _log.exception("request_failed", request_id=arrival.request_id, error=type(error).__name__)
        problem = INTERNAL
    arrival.code = problem.cause
    return problem_response(problem)


def _is_unambiguous(request: web.Request) -> bool:
    """What one of aiohttp's two parsers lets through and the other does not: another version, a coding beside chunked."""
    if request.version not in (HttpVersion10, HttpVersion11):
        return False
    codings = request.headers.getall("transfer-encoding", ())
    return not codings or (len(codings) == 1 and codings[0].strip().lower() == "chunked")


async def _sign(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["server"] = SERVER_NAME
    arrival = request.get(arrivals.ARRIVAL)
    if arrival is None:
        return
    response.headers["x-request-id"] = arrival.request_id
    elapsed_s = asyncio.get_running_loop().time() - arrival.started_s
    response.headers["openai-processing-ms"] = str(int(elapsed_s * 1000))
    if arrival.client_request_id:
        response.headers["x-client-request-id"] = arrival.client_request_id


class _Protocol(RequestHandler):
    """A connection; answers what is not HTTP at all in the envelope too."""

    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self._manager
        assert isinstance(server, _Server)
        if server.is_full:
            # Nothing of it is read, and nobody waits for it to go.
            self._force_close = True
            server.metrics.connections_refused.inc()
            # uvloop's transports are of no class of asyncio's.
            cast(asyncio.Transport, transport).write(_full())
            transport.close()
            return
        super().connection_made(transport)

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

    @property
    def is_full(self) -> bool:
        """At its bound of connections."""
        return len(self._connections) >= self.max_connections

    def __call__(self) -> RequestHandler:
        return _Protocol(self, loop=self._loop, **self._kwargs)


class _Runner(web.AppRunner):
    """Serves an application with our connections."""

    __slots__ = ("_max_connections", "_metrics")

    def __init__(self, app: web.Application, metrics: Metrics, max_connections: int, **options: Any) -> None:
        super().__init__(app, handle_signals=False, **_OPTIONS, **options)
        self._metrics = metrics
        self._max_connections = max_connections

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        # aiohttp has no other way to name the class of its connections.
        server.__class__ = _Server
        assert isinstance(server, _Server)
        server.metrics = self._metrics
        server.max_connections = self._max_connections
        return server


def _full() -> bytes:
    """The answer to a connection that is one too many."""
    problem = TOO_MANY_CONNECTIONS
    headers = {
        "content-type": "application/json",
        "content-length": str(len(problem.body())),
        "connection": "close",
        "server": SERVER_NAME,
        "x-request-id": uuid7(),
    } | problem.headers()
    lines = ["HTTP/1.1 503 Service Unavailable", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + problem.body()
