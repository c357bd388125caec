"""The image and compose file: what they name exists, and nothing but the edge's public port is open."""

from pathlib import Path
from typing import Any

import yaml
from typer.main import get_command

from services.cli.main import app
from services.common.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def test_the_image_copies_what_exists() -> None:
    copied = [
        source
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    ]
    assert copied
    assert [each for each in copied if not (ROOT / each).exists()] == []


def test_references_resolve() -> None:
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", {})) <= SERVICES.keys(), name
        mode = service.get("network_mode", "")
        assert not mode or mode.removeprefix("service:") in service["depends_on"], name
        assert {each.split(":")[0] for each in service.get("volumes", [])} <= COMPOSE["volumes"].keys(), name


def test_only_the_public_port_is_published() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"edge-sidecar": ["8443:8443"]}


def test_every_container_is_contained() -> None:
    for name, service in SERVICES.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


def test_a_service_drains_before_its_sidecar_is_stopped() -> None:
    for name in ("edge", "router", "billing"):
        assert SERVICES[name]["network_mode"] == f"service:{name}-sidecar"
        assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) > getattr(Settings(), name).limits.drain_s
    assert {"router", "billing"} <= SERVICES["edge"]["depends_on"].keys()


def test_the_authoritys_key_is_seen_by_nothing_that_runs() -> None:
    holders = [
        name for name, each in SERVICES.items() if any("authority:" in volume for volume in each.get("volumes", []))
    ]
    assert holders == ["certificates"]


def test_commands_and_settings_are_known() -> None:
    known = set(getattr(get_command(app), "commands"))  # noqa: B009 - a group, which the type does not say
    for name, service in SERVICES.items():
        if service["image"] == "speedinfer":
            assert service["command"][0] in known, name
        for variable in service.get("environment", {}):
            if variable.startswith("SPEEDINFER_") and "__" in variable:
                section, field = variable.removeprefix("SPEEDINFER_").lower().split("__")
                assert field in type(getattr(Settings(), section)).model_fields, variable
