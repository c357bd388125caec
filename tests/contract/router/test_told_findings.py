"""A worker that repeats, in what a check reads over HTTP, the secrets that it was asked with: operators see none of them."""

from typing import Any

import pytest
from google.protobuf import json_format
from speedinfer.router.v1 import registry_pb2

from services.router.told_finding import MAX_CHARACTERS
from tests.contract.router.gateway import ADMIN, MODEL, Gateway, registration
from tests.fakes import scripts
from tests.fakes.scripts import Script
from tests.fakes.worker import FakeWorker

KEY, TEAM = "worker-key-6a1f", "blue-team-77"
TRITON = {
    "transport": "triton",
    "model_name": "ensemble",
    "protocol": "http",
    "headers": {"X-Auth": f"Key {KEY}", "X-Team": TEAM},
}
MODELS = "/v2/models/ensemble"
INDEX = "/v2/repository/index"
READY: Script = [scripts.answer(200, b"")]


def refused(status: int) -> Script:
    """What repeats the request's headers."""
    return [scripts.json_answer({"error": f"asked with {KEY} of {TEAM}"}, status)]


def listed(*entries: dict[str, str]) -> Script:
    """An index of the server's models."""
    return [scripts.json_answer(list(entries))]


def declared(**more: Any) -> Script:
    """Metadata of the model."""
    return [scripts.json_answer({"name": "ensemble", "platform": "ensemble", "inputs": [], "outputs": [], **more})]


async def looked_at(gateway: Gateway, asked: registry_pb2.RegisterWorkerRequest) -> list[str]:
    """All that operators are told, by each of the ways; asserts that no secret is among it."""
    checked = await gateway.registry.CheckWorker(registry_pb2.CheckWorkerRequest(registration=asked), metadata=ADMIN)
    registered = (await gateway.registry.RegisterWorker(asked, metadata=ADMIN)).worker
    for told in (checked, registered, await gateway.fleet()):
        text = json_format.MessageToJson(told)
        assert KEY not in text
        assert TEAM not in text
    assert registered.detail == checked.worker.detail
    return [registered.detail, *checked.findings]


@pytest.mark.parametrize(
    ("paths", "shown"),
    [
        (
            {MODELS: refused(500), INDEX: listed()},
            "the metadata of model 'ensemble' cannot be read: asked with *** of ***",
        ),
        (
            {MODELS: declared(), f"{MODELS}/ready": READY, f"{MODELS}/config": refused(500)},
            "the config of model 'ensemble' cannot be read: asked with *** of ***",
        ),
        (
            {MODELS: refused(404), INDEX: listed({"name": f"{KEY}-model", "state": "READY"})},
            "the server has no model 'ensemble'; it has ***-model",
        ),
        (
            {
                MODELS: refused(400),
                INDEX: listed({"name": "ensemble", "state": "UNAVAILABLE", "reason": f"no file for {TEAM}"}),
            },
            "model 'ensemble' is not ready: UNAVAILABLE no file for ***",
        ),
    ],
    ids=["metadata", "config", "index", "state"],
)
async def test_what_a_triton_server_repeats(
    gateway: Gateway, worker: FakeWorker, paths: dict[str, Script], shown: str
) -> None:
    worker.paths = {"/v2/health/ready": READY, **paths}
    asked = registration(f"http://127.0.0.1:{worker.port}", runtime="triton", config={**TRITON, "check": "metadata"})
    assert (await looked_at(gateway, asked))[0] == shown


async def test_what_a_model_list_repeats(gateway: Gateway, worker: FakeWorker) -> None:
    asked = registration(worker.url, config={"api_key": KEY, "headers": {"X-Team": TEAM}})
    worker.models = [f"{KEY}/one", "two"]
    assert (await looked_at(gateway, asked))[0] == f"model '{MODEL}' is not listed by the worker; it lists ***/one, two"
    worker.models = [MODEL, f"two-of-{TEAM}"]
    assert f"models: {MODEL}, two-of-***" in await looked_at(gateway, asked)


async def test_what_a_generation_repeats(gateway: Gateway, worker: FakeWorker) -> None:
    asked = registration(worker.url, config={"api_key": KEY, "headers": {"X-Team": TEAM}, "check": "token"})
    worker.scripts[MODEL] = [scripts.json_answer({"error": {"message": f"no {KEY} for {TEAM}"}}, 400)]
    assert (await looked_at(gateway, asked))[0].startswith(f"model '{MODEL}' generates nothing: no *** for ***")


async def test_what_is_told_is_bounded_and_says_where_the_worker_is(gateway: Gateway, worker: FakeWorker) -> None:
    where = f"127.0.0.1:{worker.port}"
    worker.models = [where, "x" * 100_000 + KEY]
    told = (await looked_at(gateway, registration(worker.url, config={"api_key": KEY})))[0]
    assert len(told) == MAX_CHARACTERS
    assert where in told
