"""Triton over gRPC: one channel a worker, one stream a request. Imported by the Triton transport only.

The generated stubs are used as they are. Triton's high-level client hides what is needed here: the flag of the final
response, errors' ids, and the request for an empty final response. The header that would give errors a status
(`triton_grpc_error`) is never sent: Triton 2.51 drops data and crashes on it (docs/decisions/0005-triton.md). Importing
Triton's package loads numpy, about 0.3 s, so whoever needs no Triton worker should not import this module.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from services.common.tasks import TaskSet
from services.router.networks import EVERYWHERE, Networks
from services.router.safe_text import PLAIN, SafeText
from services.router.transport.guarded_resolver import NotAllowed
from services.router.transport.pinned_channel import PinnedChannel
from services.router.transport.port import Dispatch, WorkerFailure, connect_timed_out
from services.router.transport.triton_errors import (
    answer_too_large,
    cut_off,
    invalid_response,
    refused,
    unreachable,
)
from services.router.transport.triton_model import TensorPlan
from services.router.transport.triton_tensors import InputTensor, Outputs, unpack

# Made by protobuf at import, so no type checker knows its names.
_pb: Any = service_pb2

_MAX_SEND_BYTES = 2**31 - 1
# A model's error to a call with one answer comes in the trailers, for which gRPC has room for 8 KiB unless it is told.
_MAX_ERROR_BYTES = 1024 * 1024
# After the final response or an error the server ends the stream by itself; a cancel that meets that has killed Triton 2.51.
_END_WAIT_S = 2.0
_FINAL = "triton_final_response"
_WANT_FINAL = "triton_enable_empty_final_response"
# What the channel says of itself, as against what the server answered.
_NO_CONNECTION = re.compile(
    r"failed to connect|socket closed|connection (reset|refused|aborted|closed|terminat)|broken pipe|goaway|recvmsg|sendmsg"
    r"|stream removed|dns|name resolution|no address|transport|endpoint|handshake|ping|unavailable: *$"
    # As proxies have it.
    r"|upstream connect error|disconnect",
    re.IGNORECASE,
)
# The stream was torn down from the other side, by the server or by a proxy before it.
_RESET = re.compile(r"\brst_stream\b|stream removed|stream terminated", re.IGNORECASE)
_RESET_CODES = frozenset({"INTERNAL", "UNKNOWN", "CANCELLED"})
_TRAILERS = re.compile(r"\bmetadata size exceeds\b", re.IGNORECASE)
_TIMED_OUT = re.compile(r"timed out|timeout occurred|deadline", re.IGNORECASE)

# gRPC's own typed tables take Python's enumeration member by its number.
_CODE_NAMES = {code: code.name for code in grpc.StatusCode}


class TritonGrpc:
    """The inference calls of one server."""

    def __init__(
        self,
        target: str,
        *,
        secure: bool,
        headers: Sequence[tuple[str, str]],
        connect_timeout_s: float,
        max_answer_bytes: int,
        safe: SafeText = PLAIN,
        networks: Networks = EVERYWHERE,
    ) -> None:
        self.target = target
        self._connect_timeout_s = connect_timeout_s
        self._safe = safe
        self._headers = tuple((name.lower(), value) for name, value in headers)
        self._max_answer_bytes = max_answer_bytes
        options: list[tuple[str, Any]] = [
            ("grpc.max_send_message_length", _MAX_SEND_BYTES),
            ("grpc.max_receive_message_length", max_answer_bytes),
            ("grpc.max_metadata_size", _MAX_ERROR_BYTES),
            ("grpc.absolute_max_metadata_size", _MAX_ERROR_BYTES),
            # This is also how long one attempt to connect may take.
            ("grpc.min_reconnect_backoff_ms", int(connect_timeout_s * 1000)),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1_000),
            ("grpc.enable_retries", 0),
            # Triton closes connections that are pinged more often than every 300 s without data.
            ("grpc.keepalive_time_ms", 310_000),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.http2.max_pings_without_data", 2),
            # Channels of one process to one address would share a connection, and outlive a re-registration by it.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        credentials = grpc.ssl_channel_credentials() if secure else None
        self._endings = TaskSet()
        self._channel = PinnedChannel(target, credentials=credentials, options=options, networks=networks)

    async def answers(self, timeout_s: float) -> str:
        """Empty if the server answers on gRPC within the time, else what went wrong."""
        try:
            async with self._channel.for_call(timeout_s) as channel:
                await service_pb2_grpc.GRPCInferenceServiceStub(channel).ServerLive(
                    _pb.ServerLiveRequest(), timeout=timeout_s, metadata=self._headers, wait_for_ready=True
                )
        except grpc.aio.AioRpcError as error:
            # It may repeat what it was sent, which has the registration's secrets.
            return f"{_CODE_NAMES[error.code()]}: {self._safe(error.details() or '')}"
        except TimeoutError:
            return "the name is not resolved in time"
        except OSError as error:
            return error.strerror or "the name is not known"
        return ""

    async def infer(
        self, plan: TensorPlan, inputs: Sequence[InputTensor], dispatch: Dispatch
    ) -> AsyncIterator[Outputs]:
        """One request to a model that gives one response."""
        async with self._stub() as stub:
            call = stub.ModelInfer(_request(plan, inputs, dispatch), metadata=self._metadata(dispatch))
            try:
                yield outputs_of(await call)
            except grpc.aio.AioRpcError as error:
                raise self._failure(error) from None
            finally:
                call.cancel()

    async def stream(
        self, plan: TensorPlan, inputs: Sequence[InputTensor], dispatch: Dispatch
    ) -> AsyncIterator[Outputs]:
        """One request to a decoupled model: its responses until the final one. WorkerFailure if the stream ends before it:
        whatever the status says, the server did not say that this was all."""
        request = _request(plan, inputs, dispatch)
        request.parameters[_WANT_FINAL].bool_param = True
        async with self._stub() as stub, aclosing(self._responses(stub, request, dispatch)) as responses:
            async for outputs in responses:
                yield outputs

    async def _responses(self, stub: Any, request: Any, dispatch: Dispatch) -> AsyncGenerator[Outputs, None]:
        call = stub.ModelStreamInfer(metadata=self._metadata(dispatch))
        # What the server was about to end by itself, or could be: it said its last (an error is that, too), or what it says
        # cannot be read. Only a departure is in a hurry.
        over = False
        try:
            await call.write(request)
            # The server ends the stream once everything that was asked is answered.
            await call.done_writing()
            while not over:
                message = await call.read()
                if message is grpc.aio.EOF:
                    raise cut_off(f"gRPC: the stream ended without '{_FINAL}'")
                if message.error_message:
                    raise refused("", message.error_message, self._safe)
                response = message.infer_response
                over = _FINAL in response.parameters and response.parameters[_FINAL].bool_param
                if response.outputs:
                    yield outputs_of(response)
                elif not over:
                    # So looks an error without a text: what is no answer and not the end either.
                    raise refused("", "", self._safe)
        except grpc.aio.AioRpcError as error:
            raise self._failure(error) from None
        except asyncio.InvalidStateError:
            # A write to a call that has failed says only that it has; its status says why.
            raise await self._why(call) from None
        except WorkerFailure as failure:
            over = not failure.connection_lost
            raise
        finally:
            if over:
                ending = self._endings.spawn(_see_off(call), "see-off-triton")
                # Not in the coroutine, which never begins where it is cancelled first.
                ending.add_done_callback(lambda _: call.cancel())
            else:
                call.cancel()

    @asynccontextmanager
    async def _stub(self) -> AsyncIterator[Any]:
        """The calls of the server, for one of them. WorkerFailure where its name leads nowhere, or where no worker may be."""
        async with AsyncExitStack() as stack:
            try:
                channel = await stack.enter_async_context(self._channel.for_call(self._connect_timeout_s))
            except TimeoutError:
                raise connect_timed_out(self._connect_timeout_s) from None
            except NotAllowed as error:
                raise unreachable(f"gRPC: {error.strerror}", not_allowed=True) from None
            except OSError as error:
                raise unreachable(f"gRPC: {type(error).__name__}") from None
            yield service_pb2_grpc.GRPCInferenceServiceStub(channel)

    async def close(self) -> None:
        """Close the channel."""
        await self._endings.cancel()
        await self._channel.close()

    def _metadata(self, dispatch: Dispatch) -> tuple[tuple[str, str], ...]:
        trace = (("traceparent", dispatch.traceparent), ("tracestate", dispatch.tracestate))
        return self._headers + tuple((name, value) for name, value in trace if value)

    async def _why(self, call: Any) -> WorkerFailure:
        code, details = await call.code(), await call.details()
        return self._classified(_CODE_NAMES[code], details or "")

    def _failure(self, error: grpc.aio.AioRpcError) -> WorkerFailure:
        return self._classified(_CODE_NAMES[error.code()], error.details() or "")

    def _classified(self, code: str, details: str) -> WorkerFailure:
        if code == "UNAVAILABLE" and _NO_CONNECTION.search(details):
            if _TIMED_OUT.search(details):
                return connect_timed_out(self._connect_timeout_s)
            return unreachable("gRPC: the connection failed")
        if code in _RESET_CODES and _RESET.search(details):
            return unreachable("gRPC: the stream was reset")
        # The same words come from the server for a request that is too large; the bound tells whose they are.
        if code == "RESOURCE_EXHAUSTED" and f"vs. {self._max_answer_bytes})" in details:
            return answer_too_large(self._max_answer_bytes)
        # An error over the bound of trailers looks like a server without room.
        if code == "RESOURCE_EXHAUSTED" and _TRAILERS.search(details):
            return refused("INTERNAL", "", self._safe)
        return refused(code, details, self._safe)


async def _see_off(call: Any) -> None:
    """Let the server end a stream that has said its last. Nobody waits for it."""
    try:
        async with asyncio.timeout(_END_WAIT_S):
            while await call.read() is not grpc.aio.EOF:
                pass
    except (TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass


def _request(plan: TensorPlan, inputs: Sequence[InputTensor], dispatch: Dispatch) -> Any:
    request = _pb.ModelInferRequest(
        model_name=plan.model, model_version=plan.version, id=f"{dispatch.request_id}.{dispatch.attempt}"
    )
    for tensor in inputs:
        request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        request.raw_input_contents.append(tensor.raw())
    for name in plan.outputs:
        request.outputs.add(name=name)
    return request


def outputs_of(response: Any) -> Outputs:
    """The elements of each output; a server puts them into `raw_output_contents` or, typed, beside each shape."""
    raw = response.raw_output_contents
    if raw:
        if len(raw) != len(response.outputs):
            raise invalid_response(f"{len(response.outputs)} outputs with {len(raw)} contents")
        return {
            output.name: unpack(output.datatype, content) for output, content in zip(response.outputs, raw, strict=True)
        }
    outputs: dict[str, list[Any]] = {}
    for output in response.outputs:
        filled = [list(values) for _, values in output.contents.ListFields()]
        outputs[output.name] = filled[0] if filled else []
    return outputs
