"""RelayService over gRPC: a thin rim around the sessions, one per call. The app adds it to the server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import grpc
from speedinfer.router.v1 import relay_pb2, relay_pb2_grpc

from services.common.errors import ServiceError
from services.router.intake import Intake
from services.router.metrics import Metrics
from services.router.relay_session import RelaySession


class RelayServicer(relay_pb2_grpc.RelayServiceServicer):
    """See proto/speedinfer/router/v1/relay.proto."""

    def __init__(self, router_id: str, intake: Intake, metrics: Metrics) -> None:
        self._router_id = router_id
        self._intake = intake
        self._metrics = metrics
        self._sessions: set[RelaySession] = set()
        self._leaving = False
        metrics.relay_links.set_function(lambda: len(self._sessions))
        metrics.relay_open.set_function(lambda: sum(map(len, self._sessions)))

    def leave(self) -> None:
        """Nothing new is taken on any call from here on; what runs goes on."""
        self._leaving = True
        for session in self._sessions:
            session.leave()

    async def Relay(
        self, request_iterator: AsyncIterator[relay_pb2.RelayRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[relay_pb2.RelayResponse]:
        """See the proto."""
        session = RelaySession(self._router_id, self._intake, self._metrics, leaving=self._leaving)
        self._sessions.add(session)
        # An edge that is gone while a message is being written is told to nobody but this.
        context.add_done_callback(_closer(session))
        reader = asyncio.ensure_future(_read(request_iterator, session))
        try:
            async for message in session.messages():
                yield message
        finally:
            session.close()
            self._sessions.discard(session)
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader
            await session.ended()


async def _read(requests: AsyncIterator[relay_pb2.RelayRequest], session: RelaySession) -> None:
    """Take what the edge says, always at once: what may wait of it is bounded by how many numbers it may have."""
    try:
        async for request in requests:
            session.take(request)
        # The edge has closed its side: it wants nothing more.
        session.close()
    except ServiceError as error:
        session.close(error)
    finally:
        session.close()


def _closer(session: RelaySession) -> Any:
    """What gRPC calls when a call is over, however it ended."""

    def close(_context: grpc.aio.ServicerContext) -> None:
        session.close()

    return close
