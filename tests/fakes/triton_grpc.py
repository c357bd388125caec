"""A Triton server of a few lines, over gRPC alone: it says that it is alive, and answers streams when it is told to."""

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

TLS = Path(__file__).parent / "tls"
# Made by protobuf at import, so no type checker knows its names.
_pb: Any = service_pb2


class FakeTritonGrpc(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    """`async with FakeTritonGrpc() as server:` listens at `server.host`:`server.port`."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, *, tls: bool = False) -> None:
        self.host, self.port, self._tls = host, port, tls
        self.calls = 0
        self.tells = False
        self.go = asyncio.Event()
        # What the first response of a stream is: an error with this text, or an answer. And how each stream came to its end.
        self.error = ""
        self.ends: list[str] = []

    async def __aenter__(self) -> "FakeTritonGrpc":
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        address = f"{self.host}:{self.port}"
        if self._tls:
            pair = ((TLS / "worker.test.key").read_bytes(), (TLS / "worker.test.crt").read_bytes())
            self.port = self._server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        else:
            self.port = self._server.add_insecure_port(address)
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop listening and cut every call."""
        await self._server.stop(None)

    async def ServerLive(self, _request: Any, context: Any) -> Any:
        """Alive; or what it was sent is told, where `tells` is set."""
        self.calls += 1
        if self.tells:
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED, f"bad credentials {dict(context.invocation_metadata())}"
            )
        return _pb.ServerLiveResponse(live=True)

    async def ModelStreamInfer(self, _requests: Any, _context: Any) -> Any:
        """One response at once, another when `go` is set."""
        first = _pb.ModelInferResponse(id="" if self.error else "first")
        yield _pb.ModelStreamInferResponse(error_message=self.error, infer_response=first)
        try:
            await self.go.wait()
            self.ends.append("by itself")
        except asyncio.CancelledError:
            self.ends.append("cancelled")
            raise
        yield _pb.ModelStreamInferResponse(infer_response=_pb.ModelInferResponse(id="last"))
