"""gRPC as we use it: one set of options for both ends, one place where errors become statuses. Anybody may import it.

Both ends keep their ping settings here because they must agree: a server that is pinged more often than it allows closes
the connection, and a two-minute prefill sends no data.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import grpc
import structlog
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from services.common import admin_token
from services.common.errors import ServiceError, Unauthenticated
from services.common.listen import unix_path, why_no_socket

_log = structlog.get_logger(__name__)

DOMAIN = "speedinfer"
# For how long nobody may listen while one process succeeds another.
TURNOVER_S = 1.0
_TURNOVER_PAUSE_S = 0.05
_DETAILS = "grpc-status-details-bin"
MAX_MESSAGE_BYTES = 80 * 1024 * 1024

_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Where a peer's kernel still acknowledges for a process that stands still, the core waits this long for the ping's answer,
    # and a minute by itself.
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Windows stay at 64 KiB (one large message still gets what it needs). Otherwise they grow with the network's speed, and the
    # core takes up megabytes of each stream whose client does not read, before its worker is slowed.
    ("grpc.http2.bdp_probe", 0),
]
SERVER_OPTIONS: list[tuple[str, Any]] = [
    *_OPTIONS,
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
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
    # Without a retry policy (there is none) the core repeats only what no server has seen: calls that a connection's end
    # caught before they were taken. Everything else is ours to decide, since the core would not know which calls are safe.
    ("grpc.enable_retries", 1),
    ("grpc.service_config_disable_resolution", 1),
    # Our services are where the settings say: no proxy that the environment names sees what they tell one another.
    ("grpc.enable_http_proxy", 0),
]

Response = TypeVar("Response")
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler | None]]


class Server:
    """A gRPC server with health, reflection and graceful drain."""

    def __init__(
        self, interceptors: Sequence[grpc.aio.ServerInterceptor] = (), *, can_share_port: bool = False
    ) -> None:
        """With `can_share_port` a successor may listen beside it (on Linux: one of the same user)."""
        options = [*SERVER_OPTIONS, ("grpc.so_reuseport", int(can_share_port))]
        self.grpc = grpc.aio.server(interceptors=list(interceptors), options=options)
        self._can_share_port = can_share_port
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.grpc)
        self._names: list[str] = []
        self._serving = False
        # Services that cannot do their work just now, though the server takes calls.
        self._unable: set[str] = set()

    def offers(self, *service_names: str) -> None:
        """Name the services that were added, for health and reflection."""
        self._names += service_names

    async def start(self, listen: str, *, beside: bool = False) -> int:
        """Listen; answers the port. OSError if the address cannot be had; it cannot while another has it, unless we are to
        listen `beside` that one."""
        # gRPC would take a Unix socket from whoever listens there.
        alone = self._can_share_port or unix_path(listen) is not None
        if alone and not beside and (why := _why_not(listen)):
            raise OSError(f"cannot listen on {listen}: {why}")
        reflection.enable_server_reflection([*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME], self.grpc)
        try:
            port = self.grpc.add_insecure_port(listen)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {listen}: {_why_not(listen) or 'gRPC could not bind it'}") from error
        await self.grpc.start()
        await self.set_serving(True)
        return port

    async def set_serving(self, serving: bool) -> None:
        """Tell health checkers whether to send work here."""
        self._serving = serving
        for name in ("", *self._names):
            await self._tell_health(name)

    async def set_able(self, service_name: str, able: bool) -> None:
        """Tell health checkers whether one of the services can do its work; the server as a whole serves on."""
        (self._unable.discard if able else self._unable.add)(service_name)
        await self._tell_health(service_name)

    async def _tell_health(self, name: str) -> None:
        serving = self._serving and name not in self._unable
        state = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        await self._health.set(name, state)

    async def drain(self, grace_s: float) -> None:
        """Say NOT_SERVING, take no new calls, let running ones finish for at most `grace_s`, then stop."""
        await self.set_serving(False)
        await self.grpc.stop(grace_s)


def _why_not(listen: str) -> str:
    """The operating system's reason, which gRPC does not pass on; empty if there is none."""
    if (path := unix_path(listen)) is not None:
        return why_no_socket(path)
    host, _, port = listen.rpartition(":")
    host = host.strip("[]") or "0.0.0.0"  # noqa: S104 - only to learn the reason
    try:
        with socket.create_server((host, int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return ""
    except (OSError, ValueError) as error:
        return str(error)


def channel(target: str) -> grpc.aio.Channel:
    """A channel to one of our services. One per target and process."""
    return grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)


async def connected(channel: grpc.aio.Channel, within_s: float) -> bool:
    """Wait for a connection; False if there is none by then."""
    try:
        async with asyncio.timeout(within_s):
            while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
                await channel.wait_for_state_change(state)
    except TimeoutError:
        return False
    return True


async def answer(
    method: Callable[..., Awaitable[Response]],
    request: Any,
    timeout_s: float,
    metadata: Sequence[tuple[str, str]] = (),
    *,
    reads: bool = True,
) -> Response:
    """Call a service that may just be succeeded by another process: what crossed with the old one's end (CANCELLED, before
    any code of ours saw it) is asked of the new one within TURNOVER_S; and so is what found nobody or lost its connection,
    unless it does more than read. AioRpcError."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        left_s = began + timeout_s - loop.time()
        try:
            return await method(request, timeout=max(left_s, 0.001), metadata=tuple(metadata))
        except grpc.aio.AioRpcError as error:
            turnover = error.code() is grpc.StatusCode.CANCELLED or (reads and _found_nobody(error))
            if not turnover or loop.time() + _TURNOVER_PAUSE_S >= began + min(TURNOVER_S, timeout_s):
                raise
        await asyncio.sleep(_TURNOVER_PAUSE_S)


def _found_nobody(error: grpc.aio.AioRpcError) -> bool:
    """No service has answered: an UNAVAILABLE of ours has its details."""
    answered = any(key == _DETAILS for key, _ in error.trailing_metadata() or ())
    return error.code() is grpc.StatusCode.UNAVAILABLE and not answered


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
    await context.abort(error.status, error.message, ((_DETAILS, status.SerializeToString()),))


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
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(
                _guard_stream(handler.stream_stream, handler_call_details.method),
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
        if key == _DETAILS:
            for detail in status_pb2.Status.FromString(value if isinstance(value, bytes) else value.encode()).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    return info.reason, info.metadata.get("field", "")
    return error.code().name, ""
