"""The image and the compose files, one of each and two: what they name exists, who needs whom is said, and nothing is open but
the edges' public ports and, to this machine alone, Grafana.
"""

import fnmatch
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from services.cli.main import app
from services.common.settings import Settings
from tests.harness import compose, dockerfile

ROOT = compose.ROOT
FILES = {"one": compose.load(compose.ONE_OF_EACH), "two": compose.load(compose.TWO_OF_EACH)}
IMAGES = {"speedinfer", "envoyproxy/envoy", "postgres", "prom/prometheus", "grafana/grafana"}
# What a service may say, and of which form: a mistyped word is otherwise an error of Docker's, or worse, none.
FORMS: dict[str, type | tuple[type, ...]] = {
    "read_only": bool,
    "cap_drop": list,
    "security_opt": list,
    "tmpfs": list,
    "build": str,
    "image": str,
    "entrypoint": list,
    "init": bool,
    "user": str,
    "restart": str,
    "stop_grace_period": str,
    "healthcheck": dict,
    "command": list,
    "environment": dict,
    "volumes": list,
    "network_mode": str,
    "networks": list,
    "ports": list,
    "depends_on": dict,
}
HEALTH = {"interval", "timeout", "retries", "start_period", "start_interval", "test"}
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}
SECRETS = {"SPEEDINFER_ADMIN_TOKEN", "POSTGRES_PASSWORD", "GRAFANA_PASSWORD"}

Compose = dict[str, Any]


@pytest.fixture(params=FILES)
def files(request: pytest.FixtureRequest) -> Compose:
    return FILES[request.param]


@pytest.fixture
def services(files: Compose) -> dict[str, Compose]:
    found: dict[str, Compose] = files["services"]
    return found


def is_ours(service: Compose) -> bool:
    return bool(service["image"] == "speedinfer")


def runs(service: Compose) -> bool:
    """Whether it is there for as long as the deployment is."""
    return bool(service["restart"] == "unless-stopped")


def is_host(service: Compose) -> bool:
    return bool(service.get("entrypoint", [""])[0] == "sleep")


def instances(services: dict[str, Compose]) -> dict[str, str]:
    """The instances of our services, and whose each is."""
    return {
        name: service["command"][0]
        for name, service in services.items()
        if is_ours(service) and service.get("command", [""])[0] in ("edge", "router", "billing")
    }


def needed(services: dict[str, Compose], name: str) -> set[str]:
    """All that must be there before it, and is stopped after it."""
    own = set(services[name].get("depends_on", {}))
    return own.union(*(needed(services, each) for each in own)) if own else own


def test_there_are_as_many_as_the_files_are_for() -> None:
    assert sorted(instances(FILES["one"]["services"])) == ["billing", "edge", "router"]
    assert sorted(instances(FILES["two"]["services"]).values()) == sorted(["edge", "router", "billing"] * 2)


BY_COMPOSE = [ROOT / "compose.yaml", ROOT / "compose.scale.yaml"]


def by_the_schema(*files: Path) -> subprocess.CompletedProcess[str]:
    """What the published schema of compose files says."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_published_schema_takes_both_files(tmp_path: Path) -> None:
    said = by_the_schema(*BY_COMPOSE)
    assert said.returncode == 0, said.stdout
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(BY_COMPOSE[0].read_text().replace("stop_grace_period:", "stop_grace_time:", 1))
    said = by_the_schema(wrong)
    assert said.returncode == 1
    assert "stop_grace_time" in said.stdout


def test_every_word_is_one_of_composes(files: Compose) -> None:
    assert {name for name in files if not name.startswith("x-")} == {"services", "networks", "volumes"}
    for name, service in files["services"].items():
        assert set(service) <= set(FORMS), name
        for word, value in service.items():
            assert isinstance(value, FORMS[word]), f"{name}: {word}"
        assert service["image"].partition(":")[0] in IMAGES, name
        assert is_ours(service) or ":" in service["image"], f"{name}: which version"
        assert service["restart"] in ("no", "unless-stopped"), name
        health = service.get("healthcheck", {"test": ["CMD"]})
        assert set(health) <= HEALTH, name
        assert health["test"][0] == "CMD", name
        for needs, how in service.get("depends_on", {}).items():
            assert set(how) == {"condition"}, f"{name}: {needs}"
            assert how["condition"] in CONDITIONS, f"{name}: {needs}"
        for variable, value in service.get("environment", {}).items():
            assert isinstance(value, str), f"{name}: {variable}"


def test_references_resolve(files: Compose) -> None:
    services = files["services"]
    # It ends only if nobody waits for himself.
    assert set(compose.in_order(services)) == set(services)
    for name, service in services.items():
        own = set(service.get("depends_on", {}))
        assert own <= services.keys(), name
        assert compose.network_of(name, service) in own | {name}, name
        assert set(service.get("networks", [])) <= files["networks"].keys(), name
        assert not ("network_mode" in service and ("networks" in service or "ports" in service)), name
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            # What is bound must be there, or Docker makes an empty folder.
            assert (ROOT / source).exists() if source.startswith(".") else source in files["volumes"], volume
            assert not source.startswith(".") or volume.endswith(":ro"), volume
    mounted = {volume.split(":")[0] for each in services.values() for volume in each.get("volumes", [])}
    assert files["volumes"].keys() - mounted == set()


def test_what_is_waited_for_can_come(services: dict[str, Compose]) -> None:
    for name, service in services.items():
        for needs, how in service.get("depends_on", {}).items():
            waits_for = how["condition"]
            assert (waits_for == "service_completed_successfully") is not runs(services[needs]), f"{name}: {needs}"
            assert waits_for != "service_healthy" or "healthcheck" in services[needs], f"{name}: {needs}"


def test_only_the_public_ports_are_published(services: dict[str, Compose]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    second = {"edge-2-host": ["8444:8443"]} if "edge-2-host" in services else {}
    assert published == {"edge-host": ["8443:8443"], "grafana": ["127.0.0.1:3000:3000"], **second}


def test_every_container_is_contained(services: dict[str, Compose]) -> None:
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service.get("user", "10001") not in ("root", "0", "0:0"), name


def test_what_runs_says_whether_it_is_well(services: dict[str, Compose]) -> None:
    # A host holds a network namespace and does nothing that could go wrong.
    silent = [name for name, each in services.items() if runs(each) and not is_host(each) and "healthcheck" not in each]
    assert silent == []


def test_a_host_owns_the_network_of_an_instance_and_its_sidecar(services: dict[str, Compose]) -> None:
    for name in instances(services):
        host = services[f"{name}-host"]
        assert is_host(host), name
        assert "volumes" not in host, name
        for each in (name, f"{name}-sidecar"):
            assert services[each]["network_mode"] == f"service:{name}-host"
        sharing = [other for other, each in services.items() if compose.network_of(other, each) == f"{name}-host"]
        assert sorted(sharing) == sorted((name, f"{name}-sidecar", f"{name}-host"))


def test_a_service_drains_before_whom_it_needs_is_stopped(services: dict[str, Compose]) -> None:
    for name, whose in instances(services).items():
        assert {f"{name}-sidecar", f"{name}-host"} <= needed(services, name), name
        assert f"{name}-host" in needed(services, f"{name}-sidecar"), name
        drain_s = getattr(Settings(), whose).limits.drain_s
        assert compose.seconds(services[name]["stop_grace_period"]) > drain_s, name
        if whose == "edge":
            others = {each for each, kind in instances(services).items() if kind != "edge"}
            assert others <= set(services[name]["depends_on"]), name
        else:
            assert "postgres" in needed(services, name), name
    for name, service in services.items():
        assert not runs(service) or "stop_grace_period" in service, name


def test_each_edge_calls_every_instance(services: dict[str, Compose]) -> None:
    kinds = instances(services)
    listing = [services["edge-configuration"], *(services[name] for name, kind in kinds.items() if kind == "edge")]
    for service in listing:
        environment = service["environment"]
        for kind in ("router", "billing"):
            remotes = environment[f"SPEEDINFER_SIDECAR__{kind.upper()}S"].split(",")
            assert sorted(remotes) == sorted(f"{name}-host:15051" for name, each in kinds.items() if each == kind)
            own = environment[f"SPEEDINFER_EDGE__{kind.upper()}_TARGET"].split(",")
            assert len(set(own)) == len(remotes)


def test_instances_share_only_what_is_to_be_shared(services: dict[str, Compose]) -> None:
    kinds = instances(services)
    users: dict[str, set[str]] = {}
    for name in kinds:
        for volume in services[name]["volumes"]:
            users.setdefault(volume.split(":")[0], set()).add(name)
    shared = {volume: names for volume, names in users.items() if len(names) > 1}
    billings = {name for name, kind in kinds.items() if kind == "billing"}
    assert shared == ({"seals": billings} if len(billings) > 1 else {})
    for kind in ("router", "billing"):
        settings = [services[name]["environment"] for name, each in kinds.items() if each == kind]
        assert all(each == settings[0] for each in settings)
        assert settings[0][f"SPEEDINFER_{kind.upper()}__DATABASE"].startswith("postgresql://")


def test_the_authoritys_key_is_seen_by_nothing_that_runs(services: dict[str, Compose]) -> None:
    holders = [name for name, each in services.items() if any("authority:" in one for one in each.get("volumes", []))]
    assert holders == ["certificates"]
    # And a sidecar sees the identity of its own service alone.
    for name, whose in instances(services).items():
        seen = {one.split(":")[0] for one in services[f"{name}-sidecar"]["volumes"] if "-identity:" in one}
        assert seen == {f"{whose}-identity"} | ({"public-identity"} if whose == "edge" else set()), name
        assert not any("-identity:" in one for one in services[name]["volumes"]), name


def test_commands_and_settings_are_known(services: dict[str, Compose]) -> None:
    known = set(getattr(get_command(app), "commands"))  # noqa: B009 - a group, which the type does not say
    for name, service in services.items():
        if is_ours(service) and not is_host(service):
            assert service["command"][0] in known, name
        for variable in service.get("environment", {}):
            if variable.startswith("SPEEDINFER_") and "__" in variable:
                section, field = variable.removeprefix("SPEEDINFER_").lower().split("__")
                assert field in type(getattr(Settings(), section)).model_fields, variable


def test_a_sidecar_is_configured_for_what_its_service_does(services: dict[str, Compose]) -> None:
    # Two files of settings are one: the sidecar's and the service's, which defaults make of what neither says.
    for name, whose in instances(services).items():
        own = services[name]["environment"]
        theirs = services[f"{whose}-configuration"]["environment"]
        both = own.keys() & theirs.keys()
        assert {key: own[key] for key in both} == {key: theirs[key] for key in both}, name
        section = type(getattr(Settings(), whose)).model_fields
        for field in ("listen", "admin_listen", "metrics_listen"):
            variable = f"SPEEDINFER_{whose.upper()}__{field.upper()}"
            if field in section:
                default = section[field].default
                assert own.get(variable, default) == theirs.get(variable, default), f"{name}: {variable}"


def test_secrets_are_asked_for_and_written_nowhere(files: Compose) -> None:
    assert compose.asked_for(files["services"]) == SECRETS
    with pytest.raises(AssertionError, match="POSTGRES_PASSWORD"):
        compose.fill(files["services"]["postgres"], {})


def test_the_image_copies_what_exists_and_what_docker_is_given() -> None:
    assert dockerfile.copied()
    for source in dockerfile.copied():
        assert (ROOT / source).exists(), source
        assert is_given(source), f".dockerignore keeps {source} out"
        for path in (ROOT / source).rglob("*"):
            if "__pycache__" not in path.parts:
                assert is_given(path.relative_to(ROOT).as_posix()), f".dockerignore keeps {path} out"
    assert not is_given(".speedinfer/admin_token")
    assert not is_given(".git/config")
    assert not is_given("services/cli/__pycache__/main.pyc")


def is_given(path: str) -> bool:
    """Whether Docker would be given a path of the checkout: the last line about it, or about a folder above it, decides."""
    given = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.strip().removeprefix("!")
        if not pattern or pattern.startswith("#"):
            continue
        parts = path.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        patterns = [pattern, pattern.removeprefix("**/")] if pattern.startswith("**/") else [pattern]
        if any(_matches(each, one) for each in above for one in patterns):
            given = line.startswith("!")
    return given


def _matches(path: str, pattern: str) -> bool:
    # A star is for one name, two for any number.
    if pattern.count("/") != path.count("/") and "**" not in pattern:
        return False
    return fnmatch.fnmatchcase(path, pattern) or fnmatch.fnmatchcase(path, f"*/{pattern}")


def test_a_new_volume_belongs_to_whom_it_is_for(services: dict[str, Compose]) -> None:
    for name, service in services.items():
        if is_ours(service):
            targets = {volume.split(":")[1] for volume in service.get("volumes", [])}
            assert targets <= dockerfile.folders(), name


def test_the_image_runs_as_nobody_special() -> None:
    assert dockerfile.user() > 0
    stages = [text for word, text in dockerfile.instructions() if word == "FROM"]
    assert len(stages) > 1
    # What built it is not in what runs.
    assert [word for word, text in dockerfile.last_stage() if word == "COPY"] == ["COPY"]
