"""A worker as JSON: the object of `/health`, of `workers list` and, with more in it, of the admin routes. Pure."""

from datetime import UTC
from typing import Any

from google.protobuf import json_format, struct_pb2, timestamp_pb2
from speedinfer.router.v1.fleet_pb2 import Fleet, Worker, WorkerStatus
from speedinfer.router.v1.registry_pb2 import WorkerDetail

_STATUS = {
    WorkerStatus.WORKER_STATUS_UNSPECIFIED: "unhealthy",
    WorkerStatus.WORKER_STATUS_HEALTHY: "healthy",
    WorkerStatus.WORKER_STATUS_UNHEALTHY: "unhealthy",
    WorkerStatus.WORKER_STATUS_MISCONFIGURED: "misconfigured",
    WorkerStatus.WORKER_STATUS_DRAINING: "draining",
}


def public(worker: Worker) -> dict[str, Any]:
    """What everybody may see of a worker."""
    probe = None
    if worker.HasField("last_probe"):
        probe = {
            "at": timestamp(worker.last_probe.at) if worker.last_probe.HasField("at") else None,
            "latency_ms": round(worker.last_probe.latency_ms, 3),
            "error": worker.last_probe.error or None,
        }
    return {
        "worker_id": worker.worker_id,
        "worker_type": worker.worker_type,
        "runtime": worker.runtime,
        "transport": worker.transport,
        "supported_models": list(worker.supported_models),
        "status": _STATUS[worker.status],
        "circuit": worker.circuit or "closed",
        "in_flight": worker.in_flight,
        "last_probe": probe,
        "metadata": struct(worker.metadata),
    }


def for_operators(detail: WorkerDetail) -> dict[str, Any]:
    """What operators see of a worker."""
    return {
        **public(detail.worker),
        "runtime_endpoint": detail.runtime_endpoint,
        "runtime_config": struct(detail.runtime_config),
        "detail": detail.detail or None,
        "warnings": list(detail.warnings),
    }


def overall(fleet: Fleet) -> str:
    """`ok`: every worker in service is healthy; `degraded`: some; `unavailable`: none."""
    states = [worker.status for worker in fleet.workers]
    healthy = states.count(WorkerStatus.WORKER_STATUS_HEALTHY)
    if not healthy:
        return "unavailable"
    in_service = len(states) - states.count(WorkerStatus.WORKER_STATUS_DRAINING)
    return "ok" if healthy == in_service else "degraded"


def timestamp(stamp: timestamp_pb2.Timestamp) -> str:
    """RFC 3339 in UTC, with milliseconds where it has any, as the command writes it."""
    moment = stamp.ToDatetime(tzinfo=UTC)
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds").replace("+00:00", "Z")


def struct(value: struct_pb2.Struct) -> dict[str, Any]:
    """An object; whole numbers are integers again."""
    plain: dict[str, Any] = _whole(json_format.MessageToDict(value))
    return plain


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _whole(child) for name, child in value.items()}
    if isinstance(value, list):
        return [_whole(child) for child in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        return int(value)
    return value
