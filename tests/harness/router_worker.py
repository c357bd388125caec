"""A worker of the router's, without the router: for tests of what reads its answers."""

from services.router.breaker import Breaker
from services.router.health import Health, Thresholds
from services.router.registration import read
from services.router.transport.port import Transport
from services.router.worker import Load, Worker


def worker_of(transport: Transport, worker_id: str = "w") -> Worker:
    """A registered worker that speaks by `transport`."""
    document = {
        "worker_id": worker_id,
        "worker_type": "test",
        "runtime": "triton",
        "runtime_endpoint": "http://127.0.0.1:8000",
        "supported_models": ["acme/model-1"],
        "runtime_config": {"transport": "triton", "model_name": "m"},
    }
    return Worker(read(document), transport, Health(Thresholds(1, 1)), Breaker(5, 1.0), Load(), 0.0, lambda *_: None)
