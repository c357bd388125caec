"""A real Triton for the tests of the Triton transport: the scripted models, and what they tell about cancels.

`pytest_plugins = ["tests.integration.triton_server"]` gives the fixtures `triton` (one server for the session, all scripted
models), `cancelled` (what its models saw of cancels) and `own_triton` (makes servers that a test may stop and start). Where
Triton cannot run, they skip and say why.
"""

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from demo.triton_worker import TritonServer
from tests.integration.scripted_triton import server


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """All scripted models, for the whole session."""
    with server(tmp_path_factory.mktemp("triton")) as running:
        yield running


@pytest.fixture
def own_triton(tmp_path: Path) -> Iterator[Callable[..., TritonServer]]:
    """Makes servers that the test starts and stops as it likes; all are stopped in the end."""
    made: list[TritonServer] = []

    def make(*models: str) -> TritonServer:
        made.append(server(tmp_path / str(len(made)), models))
        return made[-1]

    yield make
    for each in made:
        each.stop()


@pytest.fixture
def cancelled(triton: TritonServer) -> Callable[[str], dict[str, int]]:
    """Asks for the requests whose cancel a model saw: request id -> responses sent before."""
    return lambda model: _cancelled(triton, model)


def _cancelled(running: TritonServer, model: str) -> dict[str, int]:
    """Request id -> responses sent before the cancel, as `running`'s `probe_cancelled` tells."""
    body = {"inputs": [{"name": "model", "shape": [1], "datatype": "BYTES", "data": [model]}]}
    request = urllib.request.Request(
        f"http://127.0.0.1:{running.http_port}/v2/models/probe_cancelled/infer", data=json.dumps(body).encode()
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        outputs = {output["name"]: output["data"] for output in json.load(answer)["outputs"]}
    records = [json.loads(text) for text in outputs["records"] if text]
    return {record["request_id"]: record["sent"] for record in records}
