"""Shares of CPU by function, and the sampler in a process of its own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.profile import ROOT, SAMPLER, Stack, below_entry, report, shares, short

STACKS: list[Stack] = [(["a", "b", "b"], 60), (["a", "c"], 30), (["c"], 10)]


def test_self_goes_to_the_innermost_and_a_recursion_counts_once() -> None:
    total_ns, own, with_calls = shares(STACKS)
    assert total_ns == 100
    assert own == {"b": 60, "c": 40}
    assert with_calls == {"a": 90, "b": 60, "c": 40}


def test_a_place_is_told_from_the_checkout_or_its_package() -> None:
    assert short(f"{ROOT}/services/edge/relay.py:Relay.run") == "services/edge/relay.py:Relay.run"
    assert short("/x/lib/site-packages/aiohttp/web.py:f") == "aiohttp/web.py:f"
    assert short(f"{ROOT}/.venv/lib/python3.11/site-packages/grpc/a.py:f") == "grpc/a.py:f"
    assert short("/usr/lib/python3.11/json/decoder.py:f") == "json/decoder.py:f"
    assert short("(no place)") == "(no place)"


def test_what_stands_above_the_event_loop_is_left_out() -> None:
    assert below_entry(["main.py:main", "asyncio/runners.py:Runner.run", "x.py:f"]) == [
        "asyncio/runners.py:Runner.run",
        "x.py:f",
    ]
    assert below_entry(["x.py:f", "x.py:g"]) == ["x.py:f", "x.py:g"]


def test_a_report_has_the_dearest_first() -> None:
    lines = report("edge", [(["x.py:f"], 1_000_000), (["x.py:g"], 3_000_000)], top=1, requests=2)
    assert lines[0] == "edge: 0.00 s of CPU, 2000 us a request"
    assert [line.split() for line in lines[1:]] == [
        ["self"],
        ["75.0%", "x.py:g"],
        ["with", "calls"],
        ["75.0%", "x.py:g"],
    ]


BURN = """
import os, signal, time
def burn(cpu_s):
    until = time.process_time() + cpu_s
    while time.process_time() < until:
        pass
def before():
    burn(0.4)
def counted():
    burn(0.1)
before()
os.kill(os.getpid(), signal.SIGUSR1)
counted()
os.kill(os.getpid(), signal.SIGUSR1)
"""


def burn(folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", BURN],
        env={**os.environ, "PYTHONPATH": str(SAMPLER), **environment},
        cwd=folder,
        check=False,
        timeout=60,
    )


@pytest.mark.processes
def test_the_sampler_counts_between_two_signals_only(tmp_path: Path) -> None:
    assert burn(tmp_path, CPU_SAMPLES=str(tmp_path)).returncode == 0
    [written] = tmp_path.glob("*.json")
    total_ns, _, with_calls = shares(json.loads(written.read_text())["stacks"])
    by_name = {place.rpartition(":")[2]: spent_ns for place, spent_ns in with_calls.items()}
    assert by_name["counted"] > total_ns * 0.8
    assert "before" not in by_name
    # Nor was it laid to what ran at the first tick: all that was counted is less than what `before` used.
    assert total_ns < 400_000_000


@pytest.mark.processes
def test_the_sampler_does_nothing_unless_it_is_armed(tmp_path: Path) -> None:
    # Nobody listens for the signal then, and its default is to end the process.
    assert burn(tmp_path).returncode == -signal.SIGUSR1
    assert list(tmp_path.iterdir()) == []
