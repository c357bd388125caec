"""Connections to a worker that are kept for the next request, and how to tell that one had gone stale. The HTTP transports
import it.

A worker may close a kept connection in the very moment in which it is used again. Such a request never reached it and may be
sent once more, but only where that is certain enough: the connection had been used before, broke at once, and not a byte of an
answer came.
"""

import functools
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler

from services.router.networks import Networks
from services.router.transport.guarded_resolver import RESOLVED_FOR_S, GuardedResolver
from services.router.transport.port import STALE_WITHIN_S

# Heads of answers that may wait to be read: one, and what is said before it.
MAX_HEADS = 64
_ANSWER_BEGAN = "speedinfer_answer_began"


@dataclass(slots=True)
class Sent:
    """What became known of the way that one request took. `SENT` has it while aiohttp sends that request."""

    started: float = field(default_factory=time.monotonic)
    reused: bool = False

    def met_a_stale_connection(self, error: Exception) -> bool:
        """Whether the worker had closed the kept connection before the request could reach it."""
        return (
            self.reused
            and isinstance(error, aiohttp.ClientConnectionError | OSError)
            and not getattr(error, _ANSWER_BEGAN, False)
            and time.monotonic() - self.started < STALE_WITHIN_S
        )


# The request that the task at hand sends. aiohttp's tracing tells the same, at the price of a dozen calls a request.
SENT: ContextVar[Sent] = ContextVar("sent")


class _Protocol(ResponseHandler):
    """A connection whose end says whether an answer had begun, and that tells a request whether it had been used before."""

    _began = False
    _used = False

    def set_response_params(self, **params: Any) -> None:
        # aiohttp does this before it writes a request, in the task that sends it.
        self._began = False
        if (sent := SENT.get(None)) is not None:
            sent.reused = self._used
        self._used = True
        super().set_response_params(**params)

    def resume_reading(self, resume_parser: bool = True) -> None:
        # aiohttp asks for it after each read, and passes nothing through its parser where nothing was paused.
        if self._reading_paused or self._buffer_paused:
            super().resume_reading(resume_parser)

    def data_received(self, data: bytes) -> None:
        # aiohttp also feeds nothing, to look at what it has again.
        self._began = self._began or bool(data)
        super().data_received(data)
        # aiohttp reads on for ever, and faster than anything else gets its turn, while a worker says `100 Continue`.
        if len(self._buffer) > MAX_HEADS and self.transport is not None:
            self.set_exception(aiohttp.ServerDisconnectedError("more heads than an answer has"))
            self.transport.abort()

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        if self._began:
            setattr(exc, _ANSWER_BEGAN, True)
        super().set_exception(exc, *cause)


def connector(networks: Networks, *, fresh: bool) -> aiohttp.TCPConnector:
    """Connections of one worker; with `fresh`, none that is used twice. What bounds their number is the number of requests,
    which their callers bound."""
    made = aiohttp.TCPConnector(
        limit=0,
        resolver=GuardedResolver(networks),
        ttl_dns_cache=RESOLVED_FOR_S,
        force_close=fresh,
        enable_cleanup_closed=False,
    )
    # aiohttp has no other way to name the class of its connections.
    made._factory = cast("functools.partial[ResponseHandler]", functools.partial(_Protocol, loop=made._loop))
    return made
