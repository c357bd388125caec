"""HTTP to one worker: sessions, headers, bounded reading, and what goes wrong on the way as WorkerFailure. Only the OpenAI
transport imports it.

No redirects, no proxy from the environment, no cookies, no compression; aiohttp's own total time-out never decides. A client's
headers never come here.
"""

import asyncio
import functools
import io
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiohttp
from speedinfer.router.v1.frame_pb2 import (
    FAILURE_REASON_ANSWER_TOO_LARGE,
    FAILURE_REASON_INVALID_RESPONSE,
    FAILURE_REASON_UPSTREAM,
)
from yarl import URL

from services.router import endpoint
from services.router.networks import EVERYWHERE, Networks
from services.router.transport import kept_connections
from services.router.transport.kept_connections import SENT, Sent
from services.router.transport.openai_config import OpenAiConfig
from services.router.transport.port import Dispatch, WorkerFailure, connect_timed_out
from services.router.transport.unreached import is_refused, reason

MAX_ERROR_BODY_BYTES = 64 * 1024
ERROR_BODY_TIMEOUT_S = 5.0
READ_BUFFER_BYTES = 64 * 1024
# aiohttp copies a body of bytes as a whole and warns of it; above this it is read in parts.
WHOLE_BODY_BYTES = 512 * 1024
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_TRACESTATE = re.compile(r"[\x20-\x7e]{1,512}")


class Connection:
    """The HTTP connections to one worker."""

    def __init__(self, url: str, config: OpenAiConfig, networks: Networks = EVERYWHERE) -> None:
        parts = endpoint.check(url, networks)
        self._networks = networks
        path = parts.path.rstrip("/")
        self.root = f"{parts.scheme}://{parts.netloc}{path.removesuffix('/v1')}"
        self.api = f"{self.root}/v1"
        self._connect_timeout_s = config.connect_timeout_s
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "speedinfer"}
        if config.api_key is not None:
            self._headers["Authorization"] = f"Bearer {config.api_key.get_secret_value()}"
        self._headers |= {name: value.get_secret_value() for name, value in config.headers.items()}
        # What no text of the worker's may tell anybody: what it is asked with, and where.
        self.secrets = [value.get_secret_value() for value in (config.api_key, *config.headers.values()) if value]
        self.secrets.append(parts.netloc)
        self._urls: dict[str, URL] = {}
        self._pooled: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None

    def get(self, url: str) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """A GET; only probes and checks make them."""
        return self._send("GET", url, None, {}, fresh=False)

    def post(self, url: str, body: bytes, dispatch: Dispatch) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """One request. Leaving the block before the answer is read to its end closes the connection."""
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream" if dispatch.stream else "application/json",
            "X-Request-Id": dispatch.request_id,
        }
        if _TRACEPARENT.fullmatch(dispatch.traceparent):
            headers["traceparent"] = dispatch.traceparent
            if _TRACESTATE.fullmatch(dispatch.tracestate):
                headers["tracestate"] = dispatch.tracestate
        return self._send("POST", url, body, headers, fresh=dispatch.fresh_connection)

    async def close(self) -> None:
        """Close all connections."""
        for session in (self._pooled, self._fresh):
            if session is not None:
                await session.close()

    @asynccontextmanager
    async def _send(
        self, method: str, url: str, body: bytes | None, headers: dict[str, str], *, fresh: bool
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        sent = Sent()
        SENT.set(sent)
        data: Any = io.BytesIO(body) if body is not None and len(body) > WHOLE_BODY_BYTES else body
        try:
            response = await self._session(fresh).request(
                method, self._parsed(url), data=data, headers=headers, allow_redirects=False
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._failure(error, stale=sent.met_a_stale_connection(error)) from None
        # It was sent; whoever asked has it for as long as it is needed.
        del body, data
        untell = _tell_of_its_end(response)
        try:
            encoding = response.headers.get("Content-Encoding", "identity").lower()
            if encoding != "identity":
                raise WorkerFailure(
                    FAILURE_REASON_INVALID_RESPONSE, "the worker's answer is not valid", detail="compressed unasked"
                )
            yield response
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._failure(error, stale=False) from None
        finally:
            untell()
            # Does nothing where the answer was read to its end; else the worker must see that nobody reads any more.
            response.close()

    def _parsed(self, url: str) -> URL:
        """The URL, read once: there are few for each worker."""
        known = self._urls.get(url)
        if known is None:
            known = self._urls[url] = URL(url)
        return known

    def _failure(self, error: Exception, *, stale: bool) -> WorkerFailure:
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return connect_timed_out(self._connect_timeout_s, reason(error))
        return failure_of(error, stale=stale)

    def _session(self, fresh: bool) -> aiohttp.ClientSession:
        session = self._fresh if fresh else self._pooled
        if session is None:
            session = self._open(fresh)
            if fresh:
                self._fresh = session
            else:
                self._pooled = session
        return session

    def _open(self, fresh: bool) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=kept_connections.connector(self._networks, fresh=fresh),
            timeout=aiohttp.ClientTimeout(
                total=None, connect=self._connect_timeout_s, sock_connect=self._connect_timeout_s
            ),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            read_bufsize=READ_BUFFER_BYTES,
        )


def _tell_of_its_end(response: aiohttp.ClientResponse) -> Callable[[], object]:
    """See to it that whoever reads the body learns of the connection's end; the answer says that nobody reads any more.

    Where a body's coding breaks after its beginning, aiohttp closes the connection and tells no reader, who would wait until
    a deadline."""
    protocol = response.connection.protocol if response.connection is not None else None
    closed = protocol.closed if protocol is not None else None
    if closed is None:
        return _nothing
    body = response.content

    def tell(_closed: object) -> None:
        if not body.is_eof() and body.exception() is None:
            body.set_exception(aiohttp.ClientPayloadError("the body broke off"))

    # A connection that is kept has one future for all its answers: nothing may be left on it but one callback.
    closed.remove_done_callback(_look_at)
    closed.add_done_callback(_look_at)
    closed.add_done_callback(tell)
    return functools.partial(closed.remove_done_callback, tell)


def _nothing() -> None:
    """There is nobody to tell."""


def _look_at(closed: asyncio.Future[None]) -> None:
    """Take note of how a connection ended, so that asyncio does not complain that nobody did."""
    if not closed.cancelled():
        closed.exception()


def failure_of(error: Exception, *, stale: bool) -> WorkerFailure:
    """What an error of the HTTP client means, but for the connect deadline. The worker's address, which such errors hold, goes
    nowhere."""
    kind = reason(error)
    if isinstance(error, aiohttp.ClientConnectorError):
        return WorkerFailure(
            FAILURE_REASON_UPSTREAM, "the worker cannot be reached", detail=kind, not_allowed=is_refused(error)
        )
    if isinstance(error, aiohttp.ClientResponseError):
        return WorkerFailure(FAILURE_REASON_UPSTREAM, "the worker's answer cannot be read", detail=kind)
    return WorkerFailure(
        FAILURE_REASON_UPSTREAM,
        "the connection to the worker was lost",
        detail=kind,
        stale_connection=stale,
        connection_lost=True,
    )


async def read_bounded(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """The whole body. WorkerFailure if it is over the bound."""
    if (response.content_length or 0) > max_bytes:
        raise _too_large()
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > max_bytes:
            raise _too_large()
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def read_error(response: aiohttp.ClientResponse) -> bytes:
    """What can be had of an error's body: bounded in size and time, empty where it cannot be read."""
    try:
        async with asyncio.timeout(ERROR_BODY_TIMEOUT_S):
            return await read_bounded(response, MAX_ERROR_BODY_BYTES)
    except (WorkerFailure, aiohttp.ClientError, OSError, TimeoutError):
        return b""


def _too_large() -> WorkerFailure:
    return WorkerFailure(
        FAILURE_REASON_ANSWER_TOO_LARGE,
        "the worker's answer is larger than the gateway reads",
        try_another=False,
        counts_against_worker=False,
    )
