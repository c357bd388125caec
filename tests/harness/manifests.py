"""deploy/kubernetes as it would be applied, and how tests look into it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.harness.kustomization import Object, build

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "deploy" / "kubernetes"
EXAMPLE = HERE / "overlays" / "example"
COMPONENTS = sorted((HERE / "components").iterdir())
ROLES = ("edge", "router", "billing")

BUILDS = {
    "base": build(HERE / "base"),
    "example": build(EXAMPLE),
    "all": build(EXAMPLE, *(each for each in COMPONENTS if each.name != "certificates")),
}


def of(objects: list[Object], kind: str) -> dict[str, Object]:
    """Those of a kind, by name."""
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def pod(objects: list[Object], role: str) -> Object:
    """What a role's pods are made from."""
    spec: Object = of(objects, "StatefulSet")[role]["spec"]["template"]["spec"]
    return spec


def containers(spec: Object) -> dict[str, Object]:
    """All of a pod, by name; the first ones start first."""
    return {each["name"]: each for each in [*spec["initContainers"], *spec["containers"]]}


def environment(objects: list[Object], role: str) -> dict[str, str]:
    """The settings of a role's pods, without secrets and without their file."""
    data: dict[str, str] = of(objects, "ConfigMap")[role]["data"]
    return {name: value for name, value in data.items() if name != "SPEEDINFER_CONFIG"}


def members(value: Any) -> Iterator[tuple[str, Any]]:
    """Every member of every object inside."""
    if isinstance(value, dict):
        yield from value.items()
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from members(each)
