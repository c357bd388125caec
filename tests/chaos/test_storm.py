"""A minute of a seeded storm over the whole product, after which everything adds up. CHAOS_SEED plays another one;
`python -m tests.chaos.storm` a longer one."""

import os
from pathlib import Path

import pytest

from tests.chaos import plan as plans
from tests.chaos import storm
from tests.chaos.numbered import Act

SEED = int(os.environ.get("CHAOS_SEED", "20261202"))
# With start and audit, a minute.
SECONDS = 54.0


def test_a_seed_makes_one_plan() -> None:
    one, other = (plans.make(SEED, SECONDS, storm.WORKERS) for _ in range(2))
    assert one == other
    assert [one.part("w1", call) for call in range(50)] == [other.part("w1", call) for call in range(50)]
    assert plans.make(SEED + 1, SECONDS, storm.WORKERS) != one


def test_a_plan_has_everything_in_it() -> None:
    plan = plans.make(20261202, SECONDS, storm.WORKERS)
    struck = {(fault.kind, fault.whom) for fault in plan.faults}
    assert {("kill", service) for service in plans.SERVICES} <= struck
    assert {("freeze", service) for service in plans.SERVICES} <= struck
    assert {whom for kind, whom in struck if kind == "flap"} == set(storm.WORKERS)
    acts = {plan.part(worker, call).act for worker in storm.WORKERS for call in range(len(plan.asked))}
    assert acts == set(Act)
    assert 0 <= min(one.at_s for one in plan.asked) <= max(one.at_s for one in plan.asked) <= SECONDS


@pytest.mark.processes
@pytest.mark.timeout(400)
def test_a_storm_leaves_everything_in_order(tmp_path: Path) -> None:
    wrong, figures = storm.run(SEED, SECONDS, tmp_path)
    assert not wrong, "\n".join(wrong)
    # It was a storm, and the product answered through it.
    endings = figures["endings"]
    assert endings["ANSWERED"] > figures["calls"] // 10, figures
    assert all(endings[word] for word in ("FAILED", "REFUSED", "LEFT", "LOST")), figures
