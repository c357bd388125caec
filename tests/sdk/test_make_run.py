"""`make run` with its two real workers: a line to paste that works, receipts, and a second run that finds its data."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.harness.demo_run import DemoRun
from tests.harness.product import Product
from tests.harness.real_workers import missing_llama, missing_triton

KEY = re.compile(r"sk-si-[0-9A-Za-z]{50}")


def paste(line: str) -> str:
    """Run a line in a shell, as a person does."""
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=100, check=True).stdout


def curl_lines(said: str) -> list[str]:
    return [line.strip() for line in said.splitlines() if line.strip().startswith("curl ")]


def test_the_demo_answers_bills_stops_and_finds_its_data(tmp_path: Path) -> None:
    if reason := missing_llama():
        pytest.skip(f"llama.cpp: {reason}")
    product = Product(tmp_path)
    with DemoRun(product, demo=True) as run:
        run.wait_for("After each answer a receipt stands here")
        [key] = set(KEY.findall(run.said))
        assert "Paris" in paste(curl_lines(run.said)[0])
        run.wait_for("receipt: acme/model-1 on demo-llama: ")
        balance = run.said.rpartition("balance $")[2].strip()
        if missing_triton() is None:
            run.wait_for("Triton serves", 100)
            assert "[DONE]" in paste(curl_lines(run.said)[-1])
            run.wait_for("receipt: demo/triton on demo-triton: ")
            balance = run.said.rpartition("balance $")[2].strip()
        assert run.stop(signal.SIGINT) == 0, run.said
    assert (product.data_dir / "demo.json").stat().st_mode & 0o777 == 0o600
    with DemoRun(product, demo=True) as run:
        run.wait_for("After each answer a receipt stands here")
        assert set(KEY.findall(run.said)) == {key}
        [account] = product.command("accounts", "list")
        assert account["balance"] == balance
        assert run.stop(signal.SIGTERM) == 0, run.said
    if missing_triton() is not None:
        pytest.skip(f"Triton: {missing_triton()}; llama.cpp's part was tested")
