"""Whether a service answers: `grpc.health.v1` for the router and billing, `/readyz` for the edge.

Imported by the command's modules only.
"""

import http.client
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.common.listen import split
from services.common.rpc import CHANNEL_OPTIONS

LOOK_TIMEOUT_S = 2.0
MAX_ANSWER_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at a service found."""

    ready: bool
    detail: str


def grpc_health(target: str, timeout_s: float = LOOK_TIMEOUT_S) -> Look:
    """Look at a gRPC service; waits at most `timeout_s`."""
    with grpc.insecure_channel(target, options=CHANNEL_OPTIONS) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        except grpc.RpcError as error:
            failed: grpc.Call = error  # type: ignore[assignment]
            return Look(False, f"does not answer ({failed.code().name})")
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return Look(True, "serving")
    return Look(False, "answers, but is not serving")


def edge_ready(address: str, timeout_s: float = LOOK_TIMEOUT_S) -> Look:
    """Look at an edge; waits at most `timeout_s`."""
    return _look(address, "/readyz", timeout_s)


def edge_lives(address: str, timeout_s: float = LOOK_TIMEOUT_S) -> Look:
    """Look whether an edge answers at all, whatever becomes of those it needs."""
    return _look(address, "/livez", timeout_s)


def _look(address: str, path: str, timeout_s: float) -> Look:
    host, port = split(address, "edge.listen")
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read(MAX_ANSWER_BYTES).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return Look(False, f"does not answer ({type(error).__name__})")
    finally:
        connection.close()
    return Look(True, "ready") if answer.status == 200 else Look(False, f"answers {answer.status}: {text}")
