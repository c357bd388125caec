"""All scenarios by name. A name stands once."""

from tests.fakes.scenario import Scenario
from tests.fakes.scenarios import ends, errors, framing, usage
from tests.fakes.scripts import Script

ALL: dict[str, Scenario] = {}
for _scenario in (*framing.SCENARIOS, *usage.SCENARIOS, *ends.SCENARIOS, *errors.SCENARIOS):
    assert _scenario.name not in ALL, f"two scenarios are named {_scenario.name}"
    ALL[_scenario.name] = _scenario


def scripts_by_model() -> dict[str, Script]:
    """What a fake worker plays for each model name."""
    return {name: scenario.script for name, scenario in ALL.items()}
