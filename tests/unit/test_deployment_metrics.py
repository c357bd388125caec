"""What Prometheus and Grafana are told to look at is there: each metric of ours with its labels, each target, each source.

The metrics of Envoy are compared with what one says, in tests/sidecars/test_observed.py.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from services.billing.metrics import Metrics as Billing
from services.edge.metrics import Metrics as Edge
from services.edge.openai_errors import ROUTER_UNAVAILABLE
from services.router.metrics import Metrics as Router
from tests.harness import compose, watching

FOLDER = compose.ROOT / "deploy"
# What Prometheus puts on everything, and on a histogram.
EVERYWHERE = {"job", "instance", "service"}


@dataclass(frozen=True)
class Outbox:
    """An outbox that has nothing."""

    size_bytes: int = 0
    oldest_s: float = 0.0
    sound: bool = True
    quarantine_bytes: int = 0

    def __len__(self) -> int:
        return 0


def exposed() -> dict[str, set[str]]:
    """The names that our services expose, and the labels of each."""
    edge = Edge()
    edge.watch(Outbox())
    found: dict[str, set[str]] = {}
    for registry in (edge.registry, Router().registry, Billing().registry):
        found |= of_one(registry)
    return found


def of_one(registry: CollectorRegistry) -> dict[str, set[str]]:
    # A counter's name is only ever exposed with its `_total`, a histogram's with one of three endings.
    found = {}
    for name, collector in registry._names_to_collectors.items():
        kind: str = getattr(collector, "_type")  # noqa: B009 - what it is said nowhere else
        labels: set[str] = set(getattr(collector, "_labelnames"))  # noqa: B009
        if kind == "gauge" or name.endswith(("_total", "_bucket", "_sum", "_count")):
            found[name] = labels | ({"le"} if name.endswith("_bucket") else set())
    return found


def alarms() -> list[dict[str, Any]]:
    read = yaml.safe_load(watching.ALARMS.read_text())
    return [rule for group in read["groups"] for rule in group["rules"]]


def test_each_metric_of_ours_is_exposed_with_the_labels_it_is_chosen_by() -> None:
    ours = exposed()
    assert len(watching.asked()) > 40
    for one in watching.asked():
        if one.name == "up" or one.name.startswith("envoy_"):
            continue
        assert one.name in ours, f"{one.where}: {one.name}"
        assert one.labels <= ours[one.name] | EVERYWHERE, f"{one.where}: {one.name} by {sorted(one.labels)}"


@pytest.mark.parametrize(
    ("expression", "names", "labels"),
    [
        ('sum by (le) (rate(a_bucket{code="b"}[5m])) / sum(rate(c[1h])) > 0.5', {"a_bucket", "c"}, {"le", "code"}),
        ("absent(a) or max(b) < 1", {"a", "b"}, set()),
        ("histogram_quantile(0.5, mistyped_name)", {"mistyped_name"}, set()),
    ],
)
def test_names_are_read_from_expressions(expression: str, names: set[str], labels: set[str]) -> None:
    read = list(watching._read("here", expression))
    assert {one.name for one in read} == names
    assert {label for one in read for label in one.labels} == labels


def test_each_alarm_says_what_is_and_what_to_do() -> None:
    names = [rule["alert"] for rule in alarms()]
    assert len(set(names)) == len(names)
    for rule in alarms():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "action"}, rule["alert"]
        # A template that Prometheus would fill, which none of ours needs.
        assert "{{" not in str(rule["annotations"]), rule["alert"]


def test_the_code_that_an_alarm_looks_for_is_one_of_the_edges() -> None:
    (rule,) = [rule for rule in alarms() if rule["alert"] == "NoHealthyWorker"]
    assert f'code="{ROUTER_UNAVAILABLE.code}"' in rule["expr"]


def mounted(name: str, service: str, files: Mapping[str, Any]) -> str:
    """Where a folder of deploy/ is in a container."""
    (target,) = [
        volume.split(":")[1]
        for volume in files["services"][service]["volumes"]
        if volume.split(":")[0] == f"./deploy/{name}"
    ]
    return target


def test_prometheus_reads_every_instance_of_the_files() -> None:
    config = yaml.safe_load((FOLDER / "prometheus" / "prometheus.yml").read_text())
    files = compose.load(compose.TWO_OF_EACH)
    one, other = mounted("prometheus", "prometheus", files), mounted("prometheus/scale", "prometheus", files)
    assert config["rule_files"] == [f"{one}/alarms.yml"]
    for job in config["scrape_configs"]:
        (found,) = job["file_sd_configs"]
        assert found["files"] == [f"{one}/targets.yml", f"{other}/targets.yml"]
    for names, paths in (
        (compose.ONE_OF_EACH, ["targets.yml"]),
        (compose.TWO_OF_EACH, ["targets.yml", "scale/targets.yml"]),
    ):
        groups = [each for path in paths for each in yaml.safe_load((FOLDER / "prometheus" / path).read_text())]
        targets = {target: group["labels"]["service"] for group in groups for target in group["targets"]}
        services = compose.load(names)["services"]
        port = services["edge-configuration"]["environment"]["SPEEDINFER_SIDECAR__OBSERVED_LISTEN"].rpartition(":")[2]
        hosts = [name for name in services if name.endswith("-host")]
        assert targets == {f"{name}:{port}": name.partition("-")[0] for name in hosts}


def test_grafana_is_given_prometheus_and_the_dashboard() -> None:
    files = compose.load(compose.ONE_OF_EACH)
    provisioning = FOLDER / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    # Each is in a network that the other is in.
    services = files["services"]
    assert set(services["prometheus"]["networks"]) & set(services["grafana"]["networks"])
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "speedinfer.yml").read_text())["providers"]
    assert provider["options"]["path"] == mounted("grafana/dashboards", "grafana", files)
    assert mounted("grafana/provisioning", "grafana", files) == "/etc/grafana/provisioning"
    dashboard = json.loads((watching.DASHBOARDS / "speedinfer.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert {panel["datasource"]["uid"] for panel in panels} == {source["uid"]}
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    # Nothing lies over anything else.
    covered = [
        (place["x"] + right, place["y"] + down)
        for place in places
        for right in range(place["w"])
        for down in range(place["h"])
    ]
    assert len(set(covered)) == len(covered)
    assert max(right for right, _ in covered) < 24
