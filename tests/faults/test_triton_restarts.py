"""A Triton that is killed, comes back, and loads and unloads models under a registered worker (T6, T9, T16)."""

import asyncio
import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from demo.triton_worker import TritonServer
from tests.harness.stage import Customer, Stage
from tests.harness.until import until_async
from tests.integration.scripted_triton import REPOSITORY, server
from tests.integration.triton_scene import (
    MODEL,
    WORKER_ID,
    TritonScene,
    error_of,
    kill_server,
    reasons_of,
    text_of,
)

pytestmark = pytest.mark.real

LOADED = ("endless", "stock_ensemble")
# As NVIDIA ships its models: to be filled in before they can be loaded.
UNFILLED = 'name: "unfilled"\nbackend: "${backend}"\nmax_batch_size: ${triton_max_batch_size}\n'


@pytest.fixture(scope="module")
def scene(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonScene]:
    """A server of its own, with a repository of its own."""
    folder = tmp_path_factory.mktemp("restarts")
    repository = folder / "models"
    for model in LOADED:
        shutil.copytree(REPOSITORY / model, repository / model, ignore=shutil.ignore_patterns("__pycache__"))
    for source in REPOSITORY.glob("*.py"):
        shutil.copy(source, repository)
    (repository / "unfilled" / "1").mkdir(parents=True)
    (repository / "unfilled" / "1" / "model.py").write_text("")
    (repository / "unfilled" / "config.pbtxt").write_text(UNFILLED)
    running = server(folder, LOADED, repository)
    running.start()
    try:
        running.wait_ready()
        yield TritonScene(stage.product, running)
    finally:
        running.stop()


def _load(running: TritonServer, model: str, action: str = "load") -> int:
    url = f"http://127.0.0.1:{running.http_port}/v2/repository/models/{model}/{action}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=b"{}"), timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


async def _is(scene: TritonScene, status: str) -> None:
    await until_async(lambda: scene.product.worker(WORKER_ID)["status"] == status, f"the worker is {status}")


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_t6_a_server_killed_in_a_stream_is_an_error_event_and_comes_back(
    scene: TritonScene, customer: Customer, protocol: str
) -> None:
    scene.register("endless", protocol=protocol)
    asking = asyncio.create_task(scene.ask(customer, "one two", max_tokens=10_000))
    await until_async(lambda: scene.product.worker(WORKER_ID)["in_flight"] == 1, "the stream runs")
    body = {"model": MODEL, "prompt": "one two", "max_tokens": 10_000, "stream": True}
    async with scene.client(customer) as http, http.stream("POST", "/completions", json=body) as response:
        lines = response.aiter_lines()
        # By now the first has content as well.
        assert "tok0" in await anext(lines)
        await asyncio.to_thread(kill_server, scene.server)
        rest = [line async for line in lines]
    seen = await asking
    assert text_of(seen).startswith("tok0")
    for told, done in ((error_of(seen), seen.done), (_error(rest), "data: [DONE]" in rest)):
        assert (told["code"], done) == ("upstream_error", False)
    assert reasons_of(seen) == []
    await _is(scene, "unhealthy")
    gone = await scene.ask(customer, "one")
    assert (gone.status, error_of(gone)["code"]) == (503, "no_worker_available")
    scene.assert_unpaid(customer)
    scene.server.start()
    await asyncio.to_thread(scene.server.wait_ready)
    await _is(scene, "healthy")
    again = await scene.ask(customer, "one two", max_tokens=2)
    assert (again.status, text_of(again), again.done) == (200, "tok0 tok1", True)
    scene.assert_paid_so_far(customer, 2, 2)


def _error(lines: list[str]) -> dict[str, str]:
    (found,) = [json.loads(line.removeprefix("data: "))["error"] for line in lines if '"error"' in line]
    assert isinstance(found, dict)
    return found


async def test_t16_a_model_that_is_unloaded_in_a_stream_ends_it_first(scene: TritonScene, customer: Customer) -> None:
    scene.register("endless")
    body = {"model": MODEL, "prompt": "one two", "max_tokens": 40, "stream": True}
    async with scene.client(customer) as http, http.stream("POST", "/completions", json=body) as response:
        lines = response.aiter_lines()
        assert "tok0" in await anext(lines)
        assert await asyncio.to_thread(_load, scene.server, "endless", "unload") == 200
        rest = [line async for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert await asyncio.to_thread(_load, scene.server, "endless") == 200
    scene.assert_paid(customer, 2, 40)


async def test_t16_a_model_that_is_unloaded_is_not_ready_though_its_server_is(
    scene: TritonScene, customer: Customer
) -> None:
    scene.register("stock_ensemble")
    assert _load(scene.server, "stock_ensemble", "unload") == 200
    await _is(scene, "unhealthy")
    assert scene.product.worker(WORKER_ID)["last_probe"]["error"] == "not_ready"
    seen = await scene.ask(customer, "one")
    assert (seen.status, error_of(seen)["code"]) == (503, "no_worker_available")
    assert _load(scene.server, "stock_ensemble") == 200
    await _is(scene, "healthy")
    assert text_of(await scene.ask(customer, "one", max_tokens=1)) == "tok0"
    scene.assert_paid_so_far(customer, 1, 1)


async def test_t9_t16_a_model_whose_template_was_not_filled_in_is_not_ready_and_named(scene: TritonScene) -> None:
    assert _load(scene.server, "unfilled") >= 400
    worker = scene.offer("unfilled")
    assert (worker["status"], worker["last_probe"]["error"]) == ("unhealthy", "not_ready")
    assert worker["detail"] == "model 'unfilled' is not ready: it is in the server's repository and not loaded"
    # That it failed to load does no harm to the models that are there.
    scene.register("stock_ensemble")
