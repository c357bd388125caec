"""A streamed call of the router that survives the router's being succeeded. `router_client.py` makes them.

A call that crosses with the end of a router which has a successor is turned away with CANCELLED before any code of ours saw
it; it is made again, and reaches the successor. Nothing else is repeated: a call that broke may have been seen, and whether
another worker may be tried is the router's to decide.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar, cast

import grpc

from services.common import rpc
from services.edge.router_lost import Lost

# In a row, each of a router that was just succeeded.
MAX_TURNS = 4
Request = TypeVar("Request")
Response = TypeVar("Response")


class RouterCall(Generic[Response]):
    """One call: iterate it once, or read from it; `cancel` ends it and wakes whoever reads with CancelledError."""

    # A router is listened to on its relay alone.
    is_silent = False

    def __init__(
        self,
        channel: grpc.aio.Channel,
        method: Callable[..., grpc.aio.UnaryStreamCall[Request, Response]],
        request: Request,
        timeout_s: float,
    ) -> None:
        self._channel = channel
        self._method = method
        self._request = request
        self._until = asyncio.get_running_loop().time() + timeout_s
        self._call: grpc.aio.UnaryStreamCall[Request, Response] | None = None
        self._connecting: asyncio.Task[bool] | None = None
        self._cancelled = False
        self._frames = self._read()

    def __aiter__(self) -> AsyncGenerator[Response, None]:
        return self._frames

    async def read(self) -> Response | None:
        """The next response; None at the end."""
        return await anext(self._frames, None)

    async def take(self) -> list[Response]:
        """The next response; empty at the end, and after `cancel`. Lost if it ended otherwise."""
        try:
            return [response] if (response := await self.read()) is not None else []
        except grpc.aio.AioRpcError as error:
            raise Lost(error.code()) from None
        except asyncio.CancelledError:
            # Cancelling the call wakes whoever reads it with this.
            if self._cancelled:
                return []
            raise

    async def close(self) -> None:
        """Give it up, if it has not ended by itself."""
        await self._frames.aclose()
        self.cancel()

    def cancel(self) -> None:
        """Give it up."""
        self._cancelled = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._call is not None:
            self._call.cancel()

    async def _read(self) -> AsyncGenerator[Response, None]:
        for turn in range(1, MAX_TURNS + 1):
            await self._connect()
            left_s = max(self._until - asyncio.get_running_loop().time(), 0.001)
            self._call = self._method(self._request, timeout=left_s)
            responses = cast(AsyncGenerator[Response, None], self._call.__aiter__())
            answered = False
            try:
                async for response in responses:
                    answered = True
                    yield response
                return
            except grpc.aio.AioRpcError as error:
                turned_away = error.code() is grpc.StatusCode.CANCELLED and not answered and not self._cancelled
                if not turned_away or turn == MAX_TURNS:
                    raise
            finally:
                await responses.aclose()

    async def _connect(self) -> None:
        """Have a connection first, where there is none: a call that fails for want of one is then one that was sent."""
        if self._cancelled:
            raise asyncio.CancelledError
        if self._channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY:
            return
        self._connecting = asyncio.ensure_future(rpc.connected(self._channel, rpc.TURNOVER_S))
        try:
            await self._connecting
        finally:
            self._connecting.cancel()
            self._connecting = None
