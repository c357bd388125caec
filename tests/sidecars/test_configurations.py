"""What the command writes is taken by Envoy, without a warning, and does nothing to a body; what would be open is refused."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from services.cli.sidecar import FOLDERS
from tests.harness import command_line
from tests.sidecars.envoy import validate
from tests.sidecars.mesh import certificates, empty

TEMPLATES = FOLDERS[0]
WHOSE = ("edge", "router", "billing", "operator", "finance")
SETTINGS = {
    "SPEEDINFER_EDGE__ROUTER_TARGET": "127.0.0.1:6151, unix:/run/speedinfer/router-2.sock",
    "SPEEDINFER_EDGE__BILLING_TARGET": "127.0.0.1:6251,127.0.0.1:6252",
    "SPEEDINFER_SIDECAR__ROUTERS": "10.0.0.5:15051, router-2.speedinfer.svc:15051",
    "SPEEDINFER_SIDECAR__BILLINGS": "[fd00::7]:15051, 10.0.0.7:15051",
}
OBSERVED = {
    "SPEEDINFER_SIDECAR__OBSERVED_LISTEN": "0.0.0.0:15090",
    "SPEEDINFER_EDGE__WORKERS": "2",
    "SPEEDINFER_ROUTER__METRICS_LISTEN": "127.0.0.1:9102",
    "SPEEDINFER_BILLING__METRICS_LISTEN": "127.0.0.1:9103",
}
# None of these keeps a body back or changes it.
HARMLESS = {"rbac", "router", "header_mutation"}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("configurations") / "certificates")


def write(kept: Path, whose: str, folder: Path, **settings: str) -> tuple[int, str]:
    own = {"SPEEDINFER_CONFIG": str(empty(kept.parent)), "SPEEDINFER_SIDECAR__CERTIFICATES": str(kept)}
    code, _, errors = command_line.run(["sidecar", whose, "--output", str(folder)], None, own | SETTINGS | settings)
    return code, errors


@pytest.mark.parametrize("observed", [{}, OBSERVED], ids=["unobserved", "observed"])
@pytest.mark.parametrize("whose", WHOSE)
def test_envoy_takes_it_without_a_warning(kept: Path, tmp_path: Path, whose: str, observed: Mapping[str, str]) -> None:
    assert write(kept, whose, tmp_path, **observed) == (0, "")
    assert validate(tmp_path / "envoy.yaml") == ""
    text = (tmp_path / "envoy.yaml").read_text()
    assert set(re.findall(r"envoy\.filters\.http\.(\w+)", text)) <= HARMLESS
    assert "router-2.speedinfer.svc" in text if whose in ("edge", "operator") else "router-2" not in text
    assert ("billing-2" in text) is (whose not in ("router", "billing"))
    # Between our services a silent stream lives as long as its connection.
    inner = [line for line in text.splitlines() if " route: {" in line and "cluster: edge," not in line]
    assert inner
    assert all("timeout: 0s, idle_timeout: 0s" in line for line in inner)
    assert text.count("stream_idle_timeout: 0s") == text.count("codec_type: HTTP2")
    # Nothing is repeated, and only what clients ask of the edge has an end of Envoy's.
    assert "retry" not in text.replace("retry-after", "")
    assert ("max_stream_duration" in text) is (whose == "edge")
    assert ("name: observed" in text) is bool(observed)


def test_what_is_wrong_is_seen(kept: Path, tmp_path: Path) -> None:
    # The check above would be worth nothing if Envoy took anything.
    assert write(kept, "router", tmp_path) == (0, "")
    path = tmp_path / "envoy.yaml"
    path.write_text(path.read_text().replace("require_client_certificate", "require_client_certificates"))
    assert "require_client_certificates" in validate(path)


@pytest.mark.parametrize(
    ("whose", "setting", "value", "said"),
    [
        ("router", "ROUTER__LISTEN", "0.0.0.0:50051", "router.listen: 0.0.0.0:50051 is not on loopback"),
        ("billing", "BILLING__LISTEN", "10.0.0.1:50052", "billing.listen: 10.0.0.1:50052 is not on loopback"),
        ("router", "ROUTER__METRICS_LISTEN", ":9102", "router.metrics_listen: :9102 is not on loopback"),
        ("billing", "BILLING__METRICS_LISTEN", "0.0.0.0:1", "billing.metrics_listen: 0.0.0.0:1 is not on loopback"),
        ("edge", "EDGE__LISTEN", ":8080", "edge.listen: :8080 is not on loopback"),
        ("edge", "EDGE__ADMIN_LISTEN", "[::]:8081", "edge.admin_listen: [::]:8081 is not on loopback"),
        ("edge", "SIDECAR__ADMIN_LISTEN", "0.0.0.0:9901", "sidecar.admin_listen: 0.0.0.0:9901 is not on loopback"),
        ("edge", "EDGE__ROUTER_TARGET", "127.0.0.1:1,10.0.0.1:2", "edge.router_target: 10.0.0.1:2 is not on loopback"),
        ("edge", "SIDECAR__ROUTERS", "10.0.0.5:15051", "edge.router_target names 2 and sidecar.routers 1"),
        ("edge", "SIDECAR__BILLINGS", "", "set sidecar.billings to where the sidecars of the billing instances are"),
        ("edge", "SIDECAR__BILLINGS", "billing, b:1", "sidecar.billings: 'billing' is not host:port"),
        ("edge", "SIDECAR__OBSERVED_LISTEN", "15090", "sidecar.observed_listen: '15090' is not host:port"),
        ("router", "SIDECAR__OBSERVED_LISTEN", "0.0.0.0:1", "set router.metrics_listen to an address on loopback"),
        ("billing", "SIDECAR__OBSERVED_LISTEN", "0.0.0.0:1", "set billing.metrics_listen to an address on loopback"),
        ("edge", "SIDECAR__TRUST_DOMAIN", "a b", "setting 'sidecar.trust_domain' is wrong"),
    ],
)
def test_what_would_be_open_or_leads_nowhere_is_refused(
    kept: Path, tmp_path: Path, whose: str, setting: str, value: str, said: str
) -> None:
    code, errors = write(kept, whose, tmp_path, **{f"SPEEDINFER_{setting}": value})
    assert code == 1
    assert said in errors
    assert list(tmp_path.iterdir()) == []


def test_metrics_that_are_open_are_not_shown_on_loopback(kept: Path, tmp_path: Path) -> None:
    settings = OBSERVED | {"SPEEDINFER_ROUTER__METRICS_LISTEN": "0.0.0.0:9102"}
    code, errors = write(kept, "router", tmp_path, **settings)
    assert code == 1
    assert "router.metrics_listen: 0.0.0.0:9102 is not on loopback" in errors
