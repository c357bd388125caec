"""Many calls opened in one turn of the loop: gRPC's core, left to itself, cancels what a server has not taken up soon enough.

The options that prevent it are `services/common/rpc.py`'s; beyond them the edge's own bound answers, before money is touched.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import grpc

from services.common import rpc

OPENS = 5_000
METHOD = "/speedinfer.test.Burst/Open"


class Burst(grpc.GenericRpcHandler):
    """A server's only method: what it is sent comes back once everybody of the burst has been taken up."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._taken = 0
        self._all = asyncio.Event()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """See grpc."""
        return grpc.unary_stream_rpc_method_handler(self._open)

    async def _open(self, request: bytes, _context: Any) -> AsyncIterator[bytes]:
        self._taken += 1
        if self._taken == self._expected:
            self._all.set()
        await self._all.wait()
        yield request


async def test_five_thousand_streams_opened_at_once_are_all_taken_up() -> None:
    server = rpc.Server()
    server.grpc.add_generic_rpc_handlers((Burst(OPENS),))
    port = await server.start("127.0.0.1:0")
    try:
        async with rpc.channel(f"127.0.0.1:{port}") as channel:
            open_one: Any = channel.unary_stream(METHOD)

            async def one(number: int) -> str:
                sent = b"%d" % number
                try:
                    return "whole" if [each async for each in open_one(sent, timeout=60)] == [sent] else "wrong"
                except grpc.aio.AioRpcError as error:
                    return error.code().name

            endings = Counter(await asyncio.gather(*(one(number) for number in range(OPENS))))
    finally:
        await server.drain(0)
    assert endings == {"whole": OPENS}
