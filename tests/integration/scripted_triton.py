"""Servers of the scripted models in `tests/triton_models`. The fixtures of `triton_server.py` run them; a test that wants one
with a repository of its own imports this and not the plugin."""

from pathlib import Path

import pytest

from demo.run_install import ROOT, VENV
from demo.triton_worker import TritonServer, unavailable_reason
from tests.harness.ports import free_port

REPOSITORY = ROOT / "tests" / "triton_models"
MODELS = tuple(sorted(path.parent.name for path in REPOSITORY.glob("*/config.pbtxt")))


def server(folder: Path, models: tuple[str, ...] = MODELS, repository: Path = REPOSITORY) -> TritonServer:
    """A server of scripted models; not started."""
    if reason := unavailable_reason(VENV):
        pytest.skip(f"Triton: {reason}")
    port = free_port(neighbours=2)
    return TritonServer(
        model_repository=repository,
        work_dir=folder,
        venv=VENV,
        http_port=port,
        grpc_port=port + 1,
        metrics_port=port + 2,
        models=models,
    )
