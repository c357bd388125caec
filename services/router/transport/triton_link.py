"""The way to one Triton server: gRPC where it answers, since only gRPC can be cancelled, else HTTP. Imported by the Triton
transport only.

What the server says of itself is always asked over HTTP, where the registration points to; inference takes the way that the
last check found open.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from urllib.parse import urlsplit

from services.router.networks import EVERYWHERE, Networks
from services.router.safe_text import SafeText
from services.router.transport.port import Dispatch
from services.router.transport.triton_config import TritonConfig
from services.router.transport.triton_grpc import TritonGrpc
from services.router.transport.triton_http import TritonHttp
from services.router.transport.triton_model import TensorPlan
from services.router.transport.triton_request import Asked
from services.router.transport.triton_tensors import Outputs

# Triton opens both of its ports together, so with `auto` a short look is enough.
_AUTO_WAIT_S = 1.0


class TritonLink:
    """Both protocols of one server."""

    def __init__(
        self, endpoint: str, config: TritonConfig, *, max_answer_bytes: int, networks: Networks = EVERYWHERE
    ) -> None:
        headers = [(name, value.get_secret_value()) for name, value in config.headers.items()]
        target, secure = grpc_target(endpoint, config.grpc_endpoint)
        # What no text of the server's may tell anybody: what it is asked with, and where.
        safe = SafeText([*(value for _, value in headers), urlsplit(endpoint).netloc, target])
        self._protocol = config.protocol
        self._connect_timeout_s = config.connect_timeout_s
        self.http = TritonHttp(
            endpoint,
            headers=headers,
            connect_timeout_s=config.connect_timeout_s,
            max_answer_bytes=max_answer_bytes,
            safe=safe,
            networks=networks,
        )
        self._grpc: TritonGrpc | None = None
        if target and config.protocol != "http":
            self._grpc = TritonGrpc(
                target,
                secure=secure,
                headers=headers,
                connect_timeout_s=config.connect_timeout_s,
                max_answer_bytes=max_answer_bytes,
                safe=safe,
                networks=networks,
            )
        self.uses_grpc = False

    async def choose(self) -> str:
        """Take the way that is open. Empty, or what is wrong with gRPC (with `auto` a warning, with `grpc` an error)."""
        if self._protocol == "http":
            self.uses_grpc = False
            return ""
        if self._grpc is None:
            self.uses_grpc = False
            return "no gRPC port is known, since the endpoint names no port of its own; set 'grpc_endpoint'"
        wait_s = self._connect_timeout_s if self._protocol == "grpc" else min(_AUTO_WAIT_S, self._connect_timeout_s)
        problem = await self._grpc.answers(wait_s)
        self.uses_grpc = not problem
        return f"gRPC at {self._grpc.target} does not answer ({problem})" if problem else ""

    async def respond(self, plan: TensorPlan, asked: Asked, dispatch: Dispatch) -> AsyncGenerator[Outputs | None, None]:
        """Send one request and give each of its responses; None is a sign of life in between. WorkerFailure for whatever goes
        wrong. Closing the generator drops the request."""
        source: Any
        if self.uses_grpc and self._grpc is not None:
            call = self._grpc.stream if plan.decoupled else self._grpc.infer
            source = call(plan, asked.inputs, dispatch)
        elif plan.decoupled:
            source = self.http.stream(plan, asked.inputs, dispatch, _datatypes(plan))
        else:
            source = self.http.infer(plan, asked.inputs, dispatch)
        async with aclosing(source):
            async for outputs in source:
                yield outputs

    async def close(self) -> None:
        """Close both."""
        await self.http.close()
        if self._grpc is not None:
            await self._grpc.close()


def grpc_target(endpoint: str, configured: str | None) -> tuple[str, bool]:
    """Where gRPC answers, and whether under TLS. Without a setting: the endpoint's host and the port after its own, where
    that one is explicit; else empty."""
    if configured is not None:
        scheme, _, rest = configured.rpartition("://")
        return rest.rstrip("/"), scheme in ("grpcs", "https")
    parts = urlsplit(endpoint)
    if parts.port is None or parts.hostname is None or parts.port >= 65535:
        return "", False
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{parts.port + 1}", parts.scheme == "https"


def _datatypes(plan: TensorPlan) -> dict[str, str]:
    counts = (plan.prompt_tokens_output, plan.completion_tokens_output)
    return {name: "INT64" if name in counts else "BYTES" for name in plan.outputs}
