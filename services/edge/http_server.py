"""aiohttp as the edge uses it: bounded, strict, silent about itself, and every error in OpenAI's envelope.

Here is the one place where what was raised becomes an answer. aiohttp's own texts never reach a client (they may repeat
headers), nor its log (they would repeat keys). `app.py` imports it.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from services.common.ids import uuid7
from services.edge import arrival as arrivals
from services.edge.metrics import Metrics
from services.edge.openai_errors import BAD_HTTP, INTERNAL, METHOD_NOT_ALLOWED, UNKNOWN_URL, Problem, Refused, invalid

_log = structlog.get_logger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SERVER_NAME = "speedinfer"
SHUTDOWN_S = 1.0
# What the system holds of an answer besides what is under way to the client. Without a bound it takes up to 4 MiB for each
# client that reads slowly, its worker is not slowed until then, and one that has stopped reading is noticed only then.
UNSENT_BYTES = 64 * 1024
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
    # Also bounds how long a connection may take to send its first headers.
    "keepalive_timeout": 75.0,
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


def runner(app: web.Application) -> web.AppRunner:
    """A runner for an application made by `application`."""
    return _Runner(app, handle_signals=False, **_OPTIONS)


def application(metrics: Metrics, unknown_url: Problem = UNKNOWN_URL) -> web.Application:
    """An application whose every answer has its ids and whose every error is in the envelope."""
    app = web.Application(middlewares=[_envelope(metrics, unknown_url)])
    app.on_response_prepare.append(_sign)
    return app


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
        own = transport.get_extra_info("socket")
        if own is not None and _UNSENT_OPTION is not None:
            own.setsockopt(socket.IPPROTO_TCP, _UNSENT_OPTION, UNSENT_BYTES)
        super().connection_made(transport)

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
    """Makes our connections instead of aiohttp's."""

    def __call__(self) -> RequestHandler:
        return _Protocol(self, loop=self._loop, **self._kwargs)


class _Runner(web.AppRunner):
    """Serves an application with our connections."""

    __slots__ = ()

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        # aiohttp has no other way to name the class of its connections.
        server.__class__ = _Server
        return server
