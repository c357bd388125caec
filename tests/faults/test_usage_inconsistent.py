"""Counts that cannot all be right are charged as they were reported, and the operator is told: by a metric and a line of the
log, which hold nothing of what was said. The charge itself is asserted with every scenario."""

from pathlib import Path

import pytest

from tests.fakes.scenarios import table
from tests.harness import http_client
from tests.harness.stage import WORKER_ID, Customer, Stage

METRIC = "speedinfer_router_usage_inconsistent_total"


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("usage-prompt-zero", {"prompt_zero"}),
        ("usage-prompt-zero-whole", {"prompt_zero"}),
        ("usage-completion-zero", {"completion_zero"}),
        ("usage-completion-zero-whole", {"completion_zero"}),
        ("usage-zero", {"prompt_zero", "completion_zero"}),
        ("usage-cached-over-prompt", {"cached_over_prompt"}),
        ("embeddings-zero", {"prompt_zero"}),
        ("good", set()),
        ("no-text", set()),
        ("usage-cached-all", set()),
        ("usage-negative", set()),
    ],
)
async def test_it_is_charged_and_told(name: str, kinds: set[str], stage: Stage, customer: Customer) -> None:
    scenario = table.ALL[name]
    stage.play(scenario)
    before, log_before = await _told(stage), _log_lines(stage)
    await stage.ask(customer, scenario)
    stage.assert_charged(customer, scenario)
    after = await _told(stage)
    assert {kind for kind in after if after[kind] != before.get(kind, 0)} == kinds
    assert all(after[kind] - before.get(kind, 0) == 1 for kind in kinds)
    told = _log_lines(stage)[len(log_before) :]
    assert len(told) == len(kinds)
    assert all(any(kind in line for line in told) for kind in kinds)
    assert not any(word in line for line in told for word in ("Hello", "hello", "world"))


async def _told(stage: Stage) -> dict[str, int]:
    """The metric of the one worker, by kind."""
    async with http_client.plain() as http:
        text = (await http.get(f"{stage.metrics_url}/metrics")).text
    counts: dict[str, int] = {}
    for line in text.splitlines():
        if line.startswith(METRIC):
            labels, value = line.rsplit(" ", 1)
            assert f'worker="{WORKER_ID}"' in labels
            counts[labels.split('kind="')[1].split('"')[0]] = int(value.removesuffix(".0"))
    return counts


def _log_lines(stage: Stage) -> list[str]:
    log: Path = stage.product.log("router")
    return [line for line in log.read_text().splitlines() if "usage_inconsistent" in line]
