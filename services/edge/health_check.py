"""One question to a process: is it there, and does it serve? Edge modules that choose among processes import it."""

from enum import Enum
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

# Nobody is there, or nobody says anything. Every other status was said by somebody.
_NOBODY = frozenset({
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
})  # fmt: skip


class Health(Enum):
    """What came of the question."""

    SERVING = "serving"
    # It said that it takes nothing.
    LEAVING = "leaving"
    ABSENT = "absent"


async def ask(channel: grpc.aio.Channel, within_s: float) -> Health:
    """How a process says it is. One that knows no such question is taken to serve: it answered."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    try:
        reply = await stub.Check(health_pb2.HealthCheckRequest(), timeout=within_s)
    except grpc.aio.AioRpcError as error:
        return Health.ABSENT if error.code() in _NOBODY else Health.SERVING
    return Health.SERVING if reply.status == health_pb2.HealthCheckResponse.SERVING else Health.LEAVING
