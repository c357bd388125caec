"""Calls of a router that has just been succeeded: made again where nobody saw them, and nothing else is."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc
import pytest
from speedinfer.common.v1.context_pb2 import RequestContext
from speedinfer.router.v1 import frame_pb2, inference_pb2, inference_pb2_grpc

from services.common import rpc
from services.common.errors import TurnedAway, Unavailable
from services.edge.router_call import MAX_TURNS
from services.edge.router_client import RouterClient

ITEM = inference_pb2.GenerateItem(context=RequestContext(request_id="r", remaining_ms=10_000))
FRAME = inference_pb2.GenerateResponse(frame=frame_pb2.Frame(data=frame_pb2.Data(payloads=[b"{}"])))


class Turning(inference_pb2_grpc.InferenceServiceServicer):
    """Fails the first calls with `error`, with a frame before it if `after_a_frame`."""

    def __init__(self, failures: int, error: Callable[[], Exception], after_a_frame: bool = False) -> None:
        self.calls = 0
        self._failures = failures
        self._error = error
        self._after_a_frame = after_a_frame

    async def Generate(
        self, request: inference_pb2.GenerateRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[inference_pb2.GenerateResponse]:
        self.calls += 1
        if self.calls <= self._failures:
            if self._after_a_frame:
                yield FRAME
            raise self._error()
        yield FRAME

    async def GetFleet(
        self, request: inference_pb2.GetFleetRequest, context: grpc.aio.ServicerContext
    ) -> inference_pb2.GetFleetResponse:
        self.calls += 1
        if self.calls <= self._failures:
            raise self._error()
        return inference_pb2.GetFleetResponse()


def turned_away() -> Exception:
    return TurnedAway("this router has a successor")


def broken() -> Exception:
    return Unavailable("not now")


@asynccontextmanager
async def client_of(servicer: Turning) -> AsyncIterator[RouterClient]:
    server = rpc.Server([rpc.ErrorStatuses()])
    inference_pb2_grpc.add_InferenceServiceServicer_to_server(servicer, server.grpc)
    client = RouterClient(f"127.0.0.1:{await server.start('127.0.0.1:0')}")
    try:
        yield client
    finally:
        await client.close()
        await server.drain(0)


async def test_what_was_turned_away_is_asked_again() -> None:
    router = Turning(MAX_TURNS - 1, turned_away)
    async with client_of(router) as client:
        assert [frame async for frame in client.generate(ITEM)] == [FRAME]
    assert router.calls == MAX_TURNS


async def test_not_for_ever() -> None:
    router = Turning(100, turned_away)
    async with client_of(router) as client:
        with pytest.raises(grpc.aio.AioRpcError):
            await client.generate(ITEM).read()
    assert router.calls == MAX_TURNS


@pytest.mark.parametrize(("error", "after_a_frame"), [(turned_away, True), (broken, False), (broken, True)])
async def test_what_may_have_been_seen_is_not_repeated(error: Callable[[], Exception], after_a_frame: bool) -> None:
    router = Turning(1, error, after_a_frame)
    async with client_of(router) as client:
        with pytest.raises(grpc.aio.AioRpcError):
            async for _ in client.generate(ITEM):
                pass
    assert router.calls == 1


async def test_a_call_that_we_cancel_is_not_made_again() -> None:
    router = Turning(0, broken)
    async with client_of(router) as client:
        call = client.generate(ITEM)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call.read()
    assert router.calls == 0


async def test_the_picture_is_asked_of_whoever_is_there_next() -> None:
    router = Turning(2, turned_away)
    async with client_of(router) as client:
        await client.fleet()
    assert router.calls == 3


async def test_a_refusal_is_an_answer() -> None:
    router = Turning(1, broken)
    async with client_of(router) as client:
        with pytest.raises(grpc.aio.AioRpcError):
            await client.fleet()
    assert router.calls == 1
