"""gRPC as we use it: one set of options for both ends, one place where errors become statuses. Anybody may import it.

Both ends keep their ping settings here because they must agree: a server that is pinged more often than it allows closes
the connection, and a two-minute prefill sends no data.
"""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import grpc
import structlog
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from services.common import admin_token
from services.common.errors import ServiceError, Unauthenticated

_log = structlog.get_logger(__name__)

DOMAIN = "speedinfer"
MAX_MESSAGE_BYTES = 80 * 1024 * 1024

_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Windows stay at 64 KiB (one large message still gets what it needs). Otherwise they grow with the network's speed, and the
    # core takes up megabytes of each stream whose client does not read, before its worker is slowed.
    ("grpc.http2.bdp_probe", 0),
]
SERVER_OPTIONS: list[tuple[str, Any]] = [
    *_OPTIONS,
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.so_reuseport", 0),
    # The core refuses bursts of new calls beyond this many; a thousand streams may well open at once.
    ("grpc.server.max_pending_requests", 20_000),
    ("grpc.server.max_pending_requests_hard_limit", 40_000),
    # It refuses calls that a busy process has not taken up for 30 s, too; each call's own deadline says how long it waits.
    ("grpc.server_max_unrequested_time_in_server", 24 * 3600),
]
CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    *_OPTIONS,
    # A service that comes back is found within a second, not after the default back-off of up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Retries are ours to decide; the core's would not know which calls are safe.
    ("grpc.enable_retries", 0),
]

Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]]


class Server:
    """A gRPC server with health, reflection and graceful drain."""

    def __init__(self, interceptors: Sequence[grpc.aio.ServerInterceptor] = ()) -> None:
        self.grpc = grpc.aio.server(interceptors=list(interceptors), options=SERVER_OPTIONS)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.grpc)
        self._names: list[str] = []

    def offers(self, *service_names: str) -> None:
        """Name the services that were added, for health and reflection."""
        self._names += service_names

    async def start(self, listen: str) -> int:
        """Listen; answers the port. OSError if the address cannot be had."""
        reflection.enable_server_reflection([*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME], self.grpc)
        try:
            port = self.grpc.add_insecure_port(listen)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {listen}: {_why_not(listen)}") from error
        await self.grpc.start()
        await self.set_serving(True)
        return port

    async def set_serving(self, serving: bool) -> None:
        """Tell health checkers whether to send work here."""
        state = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *self._names):
            await self._health.set(name, state)

    async def drain(self, grace_s: float) -> None:
        """Say NOT_SERVING, take no new calls, let running ones finish for at most `grace_s`, then stop."""
        await self.set_serving(False)
        await self.grpc.stop(grace_s)


def _why_not(listen: str) -> str:
    """The operating system's reason, which gRPC does not pass on."""
    host, _, port = listen.rpartition(":")
    try:
        with socket.create_server((host or "0.0.0.0", int(port))):  # noqa: S104 - only to learn the reason
            return "gRPC could not bind it"
    except (OSError, ValueError) as error:
        return str(error)


def channel(target: str) -> grpc.aio.Channel:
    """A channel to one of our services. One per target and process."""
    return grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)


class AdminGate(grpc.aio.ServerInterceptor):
    """Lets only the operators' token through to the services that are named."""

    def __init__(self, token: str, service_names: Sequence[str]) -> None:
        self._token = token
        self._services = frozenset(service_names)

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler | None:
        handler = await continuation(handler_call_details)
        if handler_call_details.method.split("/")[1] not in self._services:
            return handler
        metadata = dict(handler_call_details.invocation_metadata or ())
        presented = metadata.get("authorization")
        if isinstance(presented, str) and admin_token.is_bearer(presented, self._token):
            return handler
        return _refusing(handler)


def _refusing(handler: grpc.RpcMethodHandler | None) -> grpc.RpcMethodHandler:
    error = Unauthenticated("this call needs the operators' token: metadata 'authorization: Bearer <admin token>'")

    async def refuse(_request: Any, context: grpc.aio.ServicerContext) -> Any:
        await abort(context, error)

    async def refuse_stream(_request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        await abort(context, error)
        yield  # makes this a generator; never reached

    if handler is not None and handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(refuse_stream)
    return grpc.unary_unary_rpc_method_handler(refuse)


async def abort(context: grpc.aio.ServicerContext, error: ServiceError) -> None:
    """End a call with an error: a gRPC status, and google.rpc.ErrorInfo with one machine-readable reason."""
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)
    if error.field:
        info.metadata["field"] = error.field
    detail = any_pb2.Any()
    detail.Pack(info)
    code: int = error.status.value[0]
    status = status_pb2.Status(code=code, message=error.message, details=[detail])
    await context.abort(error.status, error.message, (("grpc-status-details-bin", status.SerializeToString()),))


class ErrorStatuses(grpc.aio.ServerInterceptor):
    """Turns a ServiceError that a unary or streaming handler raises into its status, and hides every other exception."""

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler | None:
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                _guard(handler.unary_unary, handler_call_details.method),
                handler.request_deserializer,
                handler.response_serializer,
            )
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                _guard_stream(handler.unary_stream, handler_call_details.method),
                handler.request_deserializer,
                handler.response_serializer,
            )
        return handler


def _guard(method: Any, name: str) -> Any:
    async def guarded(request: Any, context: grpc.aio.ServicerContext) -> Any:
        try:
            return await method(request, context)
        except ServiceError as error:
            await abort(context, error)
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            _log.exception("call_failed", method=name, error=type(error).__name__)
            await abort(context, ServiceError("internal error; the service's log has it"))

    return guarded


def _guard_stream(method: Any, name: str) -> Any:
    async def guarded(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        try:
            async for response in method(request, context):
                yield response
        except ServiceError as error:
            await abort(context, error)
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            _log.exception("call_failed", method=name, error=type(error).__name__)
            await abort(context, ServiceError("internal error; the service's log has it"))

    return guarded


def reason_of(error: grpc.aio.AioRpcError) -> tuple[str, str]:
    """The ErrorInfo reason and field of a failed call, or the status name and an empty field."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value if isinstance(value, bytes) else value.encode()).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    return info.reason, info.metadata.get("field", "")
    return error.code().name, ""
