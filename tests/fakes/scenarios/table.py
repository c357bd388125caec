"""All scenarios by name. A name stands once."""

from tests.fakes.scenario import Scenario
from tests.fakes.scenarios import counts, ends, errors, framing, kinds, members, statuses, time, transfer, usage
from tests.fakes.scripts import Script

_GROUPS = (framing, transfer, usage, counts, ends, errors, statuses, kinds, members, time)
ALL: dict[str, Scenario] = {}
for _scenario in (scenario for group in _GROUPS for scenario in group.SCENARIOS):
    assert _scenario.name not in ALL, f"two scenarios are named {_scenario.name}"
    ALL[_scenario.name] = _scenario


def scripts_by_model() -> dict[str, Script]:
    """What a fake worker plays for each model name."""
    return {name: scenario.script for name, scenario in ALL.items()}
