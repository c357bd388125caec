"""What `kubectl apply -k FOLDER` would apply, for as much of kustomize as deploy/kubernetes uses; the rest is refused.

Known: resources (files and folders), components, strategic merge patches (with a target, or for the object that they name),
replicas of StatefulSets, namespace.
"""

import copy
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

FILE = "kustomization.yaml"
KNOWN = {"apiVersion", "kind", "namespace", "resources", "components", "replicas", "patches"}
# The lists that are merged by a member of their items; Kubernetes says which.
MERGED_BY = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
}
WITHOUT_NAMESPACE = {"Namespace"}

Object = dict[str, Any]


class KustomizationError(ValueError):
    """A kustomization that names what is not there, or says what this reader does not know."""


def build(folder: Path, *more_components: Path) -> list[Object]:
    """The objects of a folder, with some components besides its own."""
    said = read(folder)
    found: list[Object] = []
    for name in said.get("resources", []):
        path = folder / name
        for each in build(path) if path.is_dir() else documents(path):
            _add(found, each, path)
    for component in [*(folder / name for name in said.get("components", [])), *more_components]:
        _apply_component(component, found)
    _transform(folder, said, found)
    return found


def read(folder: Path) -> Object:
    """A kustomization. KustomizationError if it has anything that is not known."""
    said: Object = yaml.safe_load((folder / FILE).read_text())
    if unknown := said.keys() - KNOWN:
        raise KustomizationError(f"{folder / FILE}: {', '.join(sorted(unknown))} is not known here")
    return said


def named(folder: Path) -> set[str]:
    """The files in the folder that its kustomization names."""
    said = read(folder)
    names = [*said.get("resources", []), *(patch["path"] for patch in said.get("patches", []))]
    return {name for name in names if not (folder / name).is_dir()}


def documents(path: Path) -> Iterator[Object]:
    """The objects in a file. KustomizationError if it is not there, or holds a member twice."""
    if not path.is_file():
        raise KustomizationError(f"{path} is not there")
    yield from yaml.load_all(path.read_text(), _Strict)


def key(each: Object) -> tuple[str, str, str]:
    """What tells objects of one namespace apart."""
    return each["apiVersion"], each["kind"], each["metadata"]["name"]


def _add(found: list[Object], each: Object, path: Path) -> None:
    if key(each) in map(key, found):
        raise KustomizationError(f"{path}: there are two of {key(each)}")
    found.append(each)


def _apply_component(folder: Path, found: list[Object]) -> None:
    said = read(folder)
    if said["kind"] != "Component":
        raise KustomizationError(f"{folder} is no Component")
    for name in said.get("resources", []):
        for each in documents(folder / name):
            _add(found, each, folder / name)
    _transform(folder, said, found)


def _transform(folder: Path, said: Object, found: list[Object]) -> None:
    for patch in said.get("patches", []):
        (change,) = documents(folder / patch["path"])
        targets = list(_targets(change, patch.get("target"), found))
        if not targets:
            raise KustomizationError(f"{folder / patch['path']} changes nothing that is there")
        for each in targets:
            merged = _merge(each, {**change, "metadata": {**change["metadata"], "name": each["metadata"]["name"]}}, "")
            each.clear()
            each.update(merged)
    for replicas in said.get("replicas", []):
        (sought,) = [each for each in found if each["kind"] == "StatefulSet" and key(each)[2] == replicas["name"]]
        sought["spec"]["replicas"] = replicas["count"]
    if (namespace := said.get("namespace")) is not None:
        for each in found:
            if each["kind"] not in WITHOUT_NAMESPACE:
                each["metadata"]["namespace"] = namespace


def _targets(change: Object, target: Object | None, found: Sequence[Object]) -> Iterator[Object]:
    if target is None:
        yield from (each for each in found if key(each) == key(change))
        return
    if unknown := target.keys() - {"kind", "name"}:
        raise KustomizationError(f"a target's {', '.join(sorted(unknown))} is not known here")
    for each in found:
        if each["kind"] == target["kind"] and re.fullmatch(target["name"], each["metadata"]["name"]):
            yield each


def _merge(own: Any, change: Any, member: str) -> Any:
    if isinstance(own, dict) and isinstance(change, dict):
        if "$patch" in change or None in change.values():
            raise KustomizationError(f"{member}: a patch that takes something away is not known here")
        added = {name: copy.deepcopy(value) for name, value in change.items() if name not in own}
        return {
            name: _merge(value, change[name], name) if name in change else value for name, value in own.items()
        } | added
    if isinstance(own, list) and isinstance(change, list):
        if member not in MERGED_BY:
            raise KustomizationError(f"{member}: how this list is merged is not known here")
        by = MERGED_BY[member]
        changes = {each[by]: each for each in change}
        kept = [_merge(each, changes.pop(each[by]), "") if each[by] in changes else each for each in own]
        # kustomize puts what is new in front.
        return [*copy.deepcopy(list(changes.values())), *kept]
    return copy.deepcopy(change)


class _Strict(yaml.SafeLoader):
    """YAML in which a member that stands twice is an error, as the API server has it."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names = [self.construct_object(name, deep=True) for name, _ in node.value]
        if twice := {name for name in names if names.count(name) > 1}:
            raise KustomizationError(f"{node.start_mark}: {', '.join(map(str, twice))} stands twice")
        return super().construct_mapping(node, deep=deep)
