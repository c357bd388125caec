"""The guide names every metric of the edge, and none that does not exist."""

import re
from pathlib import Path

from services.edge.metrics import Metrics
from services.edge.outbox import Outbox

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "metrics.md"


def test_the_guide_names_every_metric_and_no_other(tmp_path: Path) -> None:
    metrics = Metrics()
    metrics.watch(Outbox(tmp_path, 1))
    exposed = {family.name + ("_total" if family.type == "counter" else "") for family in metrics.registry.collect()}
    assert set(re.findall(r"^\| `(speedinfer_edge_\w+)` \|", GUIDE.read_text(), re.MULTILINE)) == exposed
