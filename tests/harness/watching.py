"""What Prometheus's alarms and Grafana's dashboard ask for: the names of metrics, and of the labels that they are chosen by."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from tests.harness.compose import ROOT

ALARMS = ROOT / "deploy" / "prometheus" / "alarms.yml"
DASHBOARDS = ROOT / "deploy" / "grafana" / "dashboards"
_WORDS = re.compile(
    r"\b(?:sum|max|min|rate|increase|time|count|absent|histogram_quantile|vector|or|and|unless|by|on)\b"
)
_SELECTED = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)\s*(?:\{(?P<labels>[^}]*)\})?")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_QUOTED = re.compile(r"\"[^\"]*\"")
_SHARED = re.compile(r"\b(?:by|on|without)\s*\((?P<labels>[^)]*)\)")
_DURATION = re.compile(r"\[\w+\]")


@dataclass(frozen=True)
class Asked:
    """One metric of an expression, with the labels by which it is chosen or summed."""

    where: str
    name: str
    labels: frozenset[str]


def expressions() -> Iterator[tuple[str, str]]:
    """Where each expression is, and it."""
    for group in yaml.safe_load(ALARMS.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    for path in sorted(DASHBOARDS.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                yield panel["title"], target["expr"]


def asked() -> list[Asked]:
    """Every metric that is asked for."""
    return [one for where, expression in expressions() for one in _read(where, expression)]


def _read(where: str, expression: str) -> Iterator[Asked]:
    grouped = {
        label.strip() for found in _SHARED.finditer(expression) for label in found["labels"].split(",") if label.strip()
    }
    text = _WORDS.sub(" ", _DURATION.sub(" ", _SHARED.sub(" ", _QUOTED.sub('""', expression))))
    for found in _SELECTED.finditer(text):
        yield Asked(where, found["name"], frozenset(grouped | set(_LABEL.findall(found["labels"] or ""))))
