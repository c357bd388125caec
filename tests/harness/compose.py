"""Compose files as `docker compose` reads them: merged, with variables filled in, services in the order in which they start.

Only what our files use; what they may use is in the rules of tests/unit/test_deployment.py.
"""

import re
from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
ONE_OF_EACH, TWO_OF_EACH = ("compose.yaml",), ("compose.yaml", "compose.scale.yaml")
# What a later file replaces as a whole; other lists are added to.
_REPLACED = frozenset({"command", "entrypoint", "test"})
_VARIABLE = re.compile(r"\$(?:(?P<escaped>\$)|\{(?P<name>\w+)(?::\?(?P<why>[^}]*))?\})")


def load(names: Sequence[str]) -> dict[str, Any]:
    """The files, merged, as they are written: no variable is filled in."""
    merged: dict[str, Any] = {}
    for name in names:
        merged = _merge(merged, yaml.safe_load((ROOT / name).read_text()))
    return merged


def fill(value: Any, variables: Mapping[str, str]) -> Any:
    """Fill variables in, in all texts of a value. AssertionError if one is asked for (`:?`) and not there."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _filled(found, variables), value)
    if isinstance(value, Mapping):
        return {key: fill(each, variables) for key, each in value.items()}
    if isinstance(value, list):
        return [fill(each, variables) for each in value]
    return value


def asked_for(value: Any) -> set[str]:
    """The variables without which compose refuses a file."""
    if isinstance(value, Mapping):
        return {name for each in value.values() for name in asked_for(each)}
    if isinstance(value, list):
        return {name for each in value for name in asked_for(each)}
    return {found["name"] for found in _VARIABLE.finditer(value) if found["name"]} if isinstance(value, str) else set()


def in_order(services: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Services so that each comes after those that it depends on."""
    return list(
        TopologicalSorter({name: sorted(each.get("depends_on", {})) for name, each in services.items()}).static_order()
    )


def network_of(name: str, service: Mapping[str, Any]) -> str:
    """The service whose network namespace it is in."""
    mode: str = service.get("network_mode", f"service:{name}")
    return mode.removeprefix("service:")


def seconds(text: str) -> float:
    """A duration such as `200s`."""
    assert text.endswith("s"), text
    return float(text.removesuffix("s"))


def _filled(found: re.Match[str], variables: Mapping[str, str]) -> str:
    if found["escaped"]:
        return "$"
    assert found["name"] in variables, f"{found['name']}: {found['why'] or 'not set'}"
    return variables[found["name"]]


def _merge(first: Any, second: Any, key: str = "") -> Any:
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        both = {name: _merge(first[name], second[name], name) for name in first.keys() & second.keys()}
        return {**first, **second, **both}
    if isinstance(first, list) and isinstance(second, list) and key not in _REPLACED:
        return [*first, *(each for each in second if each not in first)]
    return second
