"""The edge's HTTP application: every answer has its ids, and every error is in OpenAI's envelope.

Here is the one place where what was raised becomes an answer. aiohttp's own texts never reach a client (they may repeat
headers), nor its log (they would repeat keys). `app.py` imports it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog
from aiohttp import HttpVersion10, HttpVersion11, web

from services.edge import arrival as arrivals
from services.edge.metrics import Metrics
from services.edge.openai_errors import (
    BAD_HTTP,
    INTERNAL,
    METHOD_NOT_ALLOWED,
    UNKNOWN_URL,
    Problem,
    Refused,
    invalid,
)

_log = structlog.get_logger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SERVER_NAME = "speedinfer"


def problem_response(problem: Problem, headers: dict[str, str] | None = None) -> web.Response:
    """A problem as an HTTP answer."""
    return web.Response(
        status=problem.status,
        body=problem.body(),
        content_type="application/json",
        headers=(headers or {}) | problem.headers(),
    )


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
    """What one of aiohttp's two parsers lets through and the other does not: another version, a coding beside chunked, and
    CONNECT, whose body one of them takes for the next request."""
    if request.version not in (HttpVersion10, HttpVersion11) or request.method == "CONNECT":
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
