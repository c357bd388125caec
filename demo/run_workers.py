"""The demo's two workers as child processes: how each is started, seen to be ready, and registered."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speedinfer.router.v1 import registry_pb2_grpc

from demo.run_install import PYTHON, ROOT
from services.cli import connection, shape, workers
from services.common.settings import Settings

COMMON_MODEL = "acme/model-1"
REGISTER_TIMEOUT_S = 120.0
READY_TIMEOUT_S = 180.0


@dataclass(frozen=True)
class DemoWorker:
    """A worker that is about to be started."""

    worker_id: str
    own_model: str
    command: Sequence[str]
    registration: dict[str, Any]

    @property
    def log_name(self) -> str:
        return f"{self.worker_id}.log"


def llama_worker() -> DemoWorker:
    """SmolLM2 in llama.cpp's own OpenAI-compatible server."""
    own = "demo/llama"
    port = free_ports(18001)
    return DemoWorker(
        worker_id="demo-llama",
        own_model=own,
        command=[
            *(str(PYTHON), str(ROOT / "demo" / "llama_worker.py"), "--port", str(port), "--parallel", "4"),
            *("--alias", COMMON_MODEL),
        ],
        registration={
            "worker_id": "demo-llama",
            "worker_type": "cpu",
            "runtime": "llama.cpp",
            "runtime_endpoint": f"http://127.0.0.1:{port}/v1",
            "supported_models": [COMMON_MODEL, own],
            "runtime_config": {"transport": "openai", "model_map": {own: COMMON_MODEL}},
            "runtime_metadata": {"model": "SmolLM2-135M-Instruct"},
        },
    )


def triton_worker(work_dir: Path) -> DemoWorker:
    """The same model in a real Triton server, behind the tensors of NVIDIA's stock ensemble."""
    own = "demo/triton"
    port = free_ports(18100, count=3)
    return DemoWorker(
        worker_id="demo-triton",
        own_model=own,
        command=[
            *(str(PYTHON), str(ROOT / "demo" / "triton_worker.py"), "--work-dir", str(work_dir)),
            *("--model-repository", str(ROOT / "demo" / "triton_models")),
            *("--http-port", str(port), "--grpc-port", str(port + 1), "--metrics-port", str(port + 2)),
        ],
        registration={
            "worker_id": "demo-triton",
            "worker_type": "cpu",
            "runtime": "triton",
            "runtime_endpoint": f"http://127.0.0.1:{port}",
            "supported_models": [COMMON_MODEL, own],
            "runtime_config": {
                "transport": "triton",
                "model_name": "ensemble",
                "chat_template": str(ROOT / "demo" / "chat_template.jinja"),
                "eos_token": "<|im_end|>",
            },
            "runtime_metadata": {"model": "SmolLM2-135M-Instruct", "backend": "python"},
        },
    )


async def start(worker: DemoWorker, log: Path) -> asyncio.subprocess.Process:
    """Start a worker and wait for its READY line; what it says goes to `log`. RuntimeError if it does not come up."""
    with log.open("ab") as output:
        # Not our process group: Ctrl-C reaches us alone, and we end the workers after the services.
        process = await asyncio.create_subprocess_exec(
            *worker.command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            while line := await process.stdout.readline():
                if line.startswith(b"READY"):
                    return process
    except TimeoutError:
        pass
    except BaseException:
        await end(process)
        raise
    await end(process)
    raise RuntimeError(f"{worker.worker_id} did not come up; {log} says why")


async def end(process: asyncio.subprocess.Process, timeout_s: float = 15.0) -> None:
    """End a process, if it still runs."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(timeout_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def register(settings: Settings, worker: DemoWorker) -> dict[str, Any]:
    """Register a worker; what the router found. CommandError if it refuses."""
    request = workers.parse_registration(worker.registration, worker.worker_id)
    with connection.router(settings) as router:
        stub = registry_pb2_grpc.WorkerRegistryServiceStub(router.channel)
        return shape.worker_detail(router.call(stub.RegisterWorker, request, REGISTER_TIMEOUT_S).worker)


def free_ports(wanted: int, count: int = 1) -> int:
    """`wanted` if it and the ports after it are free, else the next that are. A registration survives a restart of the
    router, so a worker that comes back at the same port is found at once."""
    for first in range(wanted, wanted + 1000 * count, count):
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    raise RuntimeError(f"no free port from {wanted} on")


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
