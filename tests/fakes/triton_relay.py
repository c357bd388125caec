"""A gRPC relay before a real Triton that spoils the end of its streams, in ways that the server itself cannot be brought to.

    with TritonRelay(server.grpc_port) as relay:
        ...register `grpc_endpoint` 127.0.0.1:relay.port...
        relay.ending = unflagged

An ending takes the server's messages and gives what the other side gets.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import TracebackType
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

Messages = Iterator[Any]
Ending = Callable[[Messages, grpc.ServicerContext], Messages]

FINAL = "triton_final_response"
STREAMS = 16
# Longer than anybody waits.
LEFT_OPEN_S = 30.0
# Made by protobuf at import, so no type checker knows its names.
_pb: Any = service_pb2


def is_final(message: Any) -> bool:
    """Whether the server says that this is the last one."""
    return bool(message.infer_response.parameters[FINAL].bool_param)


def as_it_is(messages: Messages, _context: grpc.ServicerContext) -> Messages:
    """Every message, and the server's own status."""
    yield from messages


def unflagged(messages: Messages, _context: grpc.ServicerContext) -> Messages:
    """The stream ends well, but before the message that says so."""
    yield from (message for message in messages if not is_final(message))


def without_flags(messages: Messages, _context: grpc.ServicerContext) -> Messages:
    """No message tells whether it is the last one."""
    for message in messages:
        message.infer_response.parameters.clear()
        if message.infer_response.outputs:
            yield message


def lost(messages: Messages, context: grpc.ServicerContext) -> Messages:
    """The connection to the server breaks before the end."""
    yield from unflagged(messages, context)
    context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")


def lost_behind_a_proxy(messages: Messages, context: grpc.ServicerContext) -> Messages:
    """The same, in the words of a proxy between."""
    yield from unflagged(messages, context)
    words = "upstream connect error or disconnect/reset before headers. reset reason: connection termination"
    context.abort(grpc.StatusCode.UNAVAILABLE, words)


def reset(messages: Messages, context: grpc.ServicerContext) -> Messages:
    """The stream is torn down, and its connection stays."""
    yield from unflagged(messages, context)
    context.abort(grpc.StatusCode.INTERNAL, "Received RST_STREAM with error code 2")


def error_after_the_end(messages: Messages, _context: grpc.ServicerContext) -> Messages:
    """An error follows the message that was the last."""
    yield from messages
    yield _pb.ModelStreamInferResponse(error_message="too late")


def left_open(messages: Messages, context: grpc.ServicerContext) -> Messages:
    """The end is said, and the stream is not ended."""
    yield from messages
    gone = Event()
    if context.add_callback(gone.set):
        gone.wait(LEFT_OPEN_S)


def flag_on_the_last_output(messages: Messages, _context: grpc.ServicerContext) -> Messages:
    """The end is said along with the last text, and no empty message follows."""
    held = None
    for message in messages:
        if held is not None:
            held.infer_response.parameters[FINAL].bool_param = is_final(message)
            yield held
        held = None if is_final(message) else message


class TritonRelay(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """The relay, on a port of its own. What is set on it takes effect with the next stream."""

    def __init__(self, grpc_port: int) -> None:
        self.ending: Ending = as_it_is
        self._channel = grpc.insecure_channel(f"127.0.0.1:{grpc_port}")
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._server = grpc.server(ThreadPoolExecutor(max_workers=STREAMS))
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> "TritonRelay":
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(None).wait()
        self._channel.close()

    def ServerLive(self, request: Any, context: grpc.ServicerContext) -> Any:
        """What the check asks."""
        return self._stub.ServerLive(request)

    def ModelStreamInfer(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Messages:
        """One stream."""
        yield from self.ending(self._stub.ModelStreamInfer(requests), context)
