"""The unmodified `openai` SDK for Node, and curl as people paste it, against real servers on both transports."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.harness.sse import DONE
from tests.sdk.charged import assert_charged
from tests.sdk.conftest import Real

ROOT = Path(__file__).resolve().parents[2]
SDK_FOLDER = ROOT / "build" / "node"
SCRIPT = Path(__file__).with_name("chat.mjs")
TIMEOUT_S = 110


def node() -> str:
    found = shutil.which("node")
    if found is None or not (SDK_FOLDER / "node_modules" / "openai").is_dir():
        pytest.skip("Node, or its `openai` package, is not here: make test installs the package where npm is")
    return found


def test_node(transport: str, real: Real) -> None:
    command = [node(), str(SCRIPT)]
    model = real.model(transport)
    account_id, key = real.customer()
    environment = {
        "PATH": os.environ["PATH"],
        "SDK_FOLDER": str(SDK_FOLDER),
        "BASE_URL": real.product.base_url,
        "API_KEY": key,
        "MODEL": model,
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert "Paris" in seen["whole"]["text"]
    assert seen["whole"]["model"] == model
    assert "Paris" in seen["stream"]["text"]
    assert (seen["stream"]["last_choices"], seen["stream"]["usages"]) == (0, 1)
    assert seen["refused"] == {"status": 404, "code": "model_not_found"}
    assert_charged(real.product, account_id, seen["whole"]["usage"], seen["stream"]["usage"])


def curl(url: str, key: str, body: dict[str, Any]) -> str:
    if shutil.which("curl") is None:
        pytest.skip("curl is not here")
    done = subprocess.run(
        [
            *("curl", "-sSN", url, "-H", f"Authorization: Bearer {key}", "-H", "Content-Type: application/json"),
            *("-d", json.dumps(body)),
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return done.stdout


def test_curl(transport: str, real: Real) -> None:
    model = real.model(transport)
    account_id, key = real.customer()
    url = f"{real.product.base_url}/chat/completions"
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Name the capital of France."}],
        "max_tokens": 16,
        "temperature": 0,
    }
    whole = json.loads(curl(url, key, body))
    assert "Paris" in whole["choices"][0]["message"]["content"]
    lines = [line for line in curl(url, key, body | {"stream": True}).splitlines() if line.startswith("data: ")]
    assert lines[-1] == f"data: {DONE}"
    last = json.loads(lines[-2].removeprefix("data: "))
    assert last["usage"]["completion_tokens"] > 0
    assert_charged(real.product, account_id, whole["usage"], last["usage"])


def test_the_cost_is_the_charge(transport: str, real: Real) -> None:
    model = real.model(transport)
    account_id, key = real.customer()
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    text = curl(f"{real.product.base_url}/chat/completions", key, body)
    # A JSON number with nine decimals; read as text, since a float would not show them.
    cost = json.loads(text, parse_float=str)["usage"]["cost"]
    real.product.settled(account_id)
    assert real.product.entries(account_id)[-1]["amount"] == f"-{cost}"
