"""What operators do first, on real servers: register, see the worker healthy, see what is wrong named, stop and start."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.real_workers import triton_registration, triton_server
from tests.harness.until import until
from tests.sdk.conftest import Real


def health(real: Real) -> dict[str, dict[str, Any]]:
    answer = httpx.get(f"{real.product.url}/health", timeout=30)
    return {worker["worker_id"]: worker for worker in answer.json()["workers"]}


def test_both_workers_are_healthy_in_health(real: Real) -> None:
    found = health(real)
    assert found["llama"]["status"] == "healthy"
    assert found["llama"]["transport"] == "openai"
    real.model("triton")
    assert found["triton"]["status"] == "healthy"
    assert found["triton"]["runtime"] == "triton"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"output_name": "text_otput"}, ["text_otput", "ensemble", "text_output", "num_input_tokens"]),
        ({"completion_tokens_output_name": "tokens_out"}, ["tokens_out", "ensemble", "num_output_tokens"]),
        ({"max_tokens_input_name": "max_new"}, ["max_new", "ensemble", "max_tokens"]),
        ({"model_name": "ensembel"}, ["ensembel"]),
    ],
    ids=["output", "usage output", "input", "model"],
)
def test_a_wrong_name_is_refused_service_and_named(config: dict[str, str], said: list[str], real: Real) -> None:
    real.model("triton")
    assert real.triton is not None
    registration = triton_registration(real.triton, "wrong", "real/wrong", **config)
    worker = real.product.register(registration)
    try:
        assert worker["status"] == "misconfigured"
        for word in said:
            assert word in worker["detail"]
        assert health(real)["wrong"]["last_probe"]["error"] == "misconfigured"
    finally:
        real.product.command("workers", "remove", "wrong")


def test_both_registrations_of_the_contract_work_as_they_stand(real: Real) -> None:
    """But for the addresses."""
    real.model("triton")
    assert real.triton is not None
    registration = {
        "worker_id": "trtllm-triton-01",
        "worker_type": "nvidia-gpu",
        "runtime": "tensorrt-llm",
        "runtime_endpoint": f"http://127.0.0.1:{real.triton.http_port}",
        "supported_models": ["real/contract"],
        "runtime_config": {
            "transport": "triton",
            "model_name": "ensemble",
            "input_name": "text_input",
            "max_tokens_input_name": "max_tokens",
            "output_name": "text_output",
            "prompt_tokens_output_name": "prompt_tokens",
            "completion_tokens_output_name": "completion_tokens",
        },
        "runtime_metadata": {"backend": "tensorrt-llm"},
    }
    try:
        assert real.product.register(registration)["status"] == "healthy"
    finally:
        real.product.command("workers", "remove", "trtllm-triton-01")


def test_a_triton_that_stops_and_starts_again_is_picked_up(real: Real, tmp_path: Path) -> None:
    real.model("triton")
    account_id, key = real.customer()
    real.product.price("real/restarted")
    body = {"model": "real/restarted", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    headers = {"authorization": f"Bearer {key}"}

    def ask() -> httpx.Response:
        return httpx.post(f"{real.product.base_url}/chat/completions", json=body, headers=headers, timeout=60)

    server = triton_server(tmp_path)
    registration = triton_registration(server, "restarted", "real/restarted")
    # Not yet there: registered all the same, and picked up when it answers.
    shown = real.product.run("workers", "register", "-", "--json", stdin=json.dumps(registration))
    assert shown.json["status"] == "unhealthy"
    try:
        with server:
            until(lambda: health(real)["restarted"]["status"] == "healthy", "it is picked up", 60)
            assert ask().status_code == 200
        until(lambda: health(real)["restarted"]["status"] == "unhealthy", "it is seen to be gone", 60)
        assert ask().json()["error"]["code"] == "no_worker_available"
        with server:
            until(lambda: health(real)["restarted"]["status"] == "healthy", "it is picked up again", 60)
            assert ask().status_code == 200
    finally:
        real.product.command("workers", "remove", "restarted")
    assert [entry["kind"] for entry in real.product.entries(account_id)] == ["credit", "charge", "charge"]
