"""What can be read on `sidecar.observed_listen`: metrics and health by GET of their exact paths, and nothing else."""

import http.client
import re
import socket

import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.common.listen import split
from tests.harness import watching
from tests.harness.upstream import Upstream
from tests.sidecars.mesh import HOSTS, Mesh

SERVICES = ("edge", "router", "billing")
METRICS, ENVOY = "/metrics", "/stats/prometheus"
# Doors of Envoy's admin interface and of our services, pages of the right name said otherwise, and doors out.
SHUT = (
    *("/", "/stats", "/stats?format=prometheus", "/config_dump", "/clusters", "/certs", "/server_info", "/memory"),
    *("/quitquitquit", "/healthcheck/fail", "/drain_listeners", "/logging", "/runtime_modify", "/help", "/heapdump"),
    *("/stats/prometheus?usedonly", "/stats/prometheus/", "/stats/prometheus/../../quitquitquit", "/ready/", "/READY"),
    *("/metrics/", "/metrics?x=1", "/metrics/2", "//metrics", "/metrics/..", "/%6detrics", "/metrics;x", "/metrics%2f"),
    *("/admin/v1/workers", "/v1/models", "/v1/chat/completions", "/health", "/livez", "/openapi.json"),
    *("http://elsewhere/", "/grpc.health.v1.Health/Check", "*"),
)
METHODS = ("HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE")
WAIT_S = 10


def ask(mesh: Mesh, name: str, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection(mesh.observed[name], timeout=WAIT_S)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        connection.putheader("content-length", "0")
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def names(text: str) -> set[str]:
    return {family.name for family in text_string_to_metric_families(text)}


@pytest.mark.parametrize("name", SERVICES)
def test_metrics_of_the_service_and_of_its_envoy_can_be_read(mesh: Mesh, upstream: Upstream, name: str) -> None:
    del upstream
    status, text = ask(mesh, name, METRICS)
    assert status == 200
    assert names(text)
    assert all(each.startswith(f"speedinfer_{name}_") for each in names(text))
    status, text = ask(mesh, name, ENVOY)
    assert status == 200
    assert "envoy_server_days_until_first_cert_expiring" in names(text)
    assert ask(mesh, name, "/ready") == (200, "LIVE\n")
    assert ask(mesh, name, "/readyz")[0] == (200 if name == "edge" else 404)


def test_what_alarms_and_the_dashboard_ask_of_envoy_is_there(mesh: Mesh, upstream: Upstream) -> None:
    del upstream
    found: dict[str, set[str]] = {}
    for name in SERVICES:
        # As it stands there: the parser would end counters of Envoy's in `_total`, which Prometheus does not.
        for metric, labels in re.findall(r"^(\w+)\{(.*)\} \S+$", ask(mesh, name, ENVOY)[1], re.MULTILINE):
            found.setdefault(metric, {"instance"}).update(re.findall(r'(\w+)="', labels))
    asked = [one for one in watching.asked() if one.name.startswith("envoy_")]
    assert asked
    for one in asked:
        assert one.name in found, f"{one.where}: {one.name}"
        assert one.labels <= found[one.name], f"{one.where}: {one.name} by {sorted(one.labels)}"


def test_of_who_only_calls_there_is_its_envoy(mesh: Mesh) -> None:
    assert ask(mesh, "operator", METRICS)[0] == 404
    assert ask(mesh, "operator", ENVOY)[0] == 200


@pytest.mark.parametrize("name", HOSTS)
def test_nothing_else_can_be_reached(mesh: Mesh, name: str) -> None:
    found = {path: status for path in SHUT if (status := ask(mesh, name, path)[0]) not in (400, 404)}
    assert found == {}
    for path in (METRICS, ENVOY, "/ready", "/readyz", "/quitquitquit", "/admin/v1/workers"):
        for method in METHODS:
            assert ask(mesh, name, path, method)[0] == 404, f"{method} {path}"
    # Each of them still lives.
    assert ask(mesh, name, ENVOY)[0] == 200


@pytest.mark.parametrize("name", SERVICES)
def test_it_is_no_proxy(mesh: Mesh, name: str) -> None:
    for head in (
        f"CONNECT {mesh.address('edge')} HTTP/1.1\r\nhost: {mesh.address('edge')}\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ):
        with socket.create_connection(split(mesh.observed[name], "observed"), WAIT_S) as client:
            client.settimeout(WAIT_S)
            client.sendall(head.encode())
            status = client.recv(4096).split(b" ")[1:2]
        assert status in ([b"403"], [b"404"], [b"400"], []), head
