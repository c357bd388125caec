"""Certificates change while everything runs: streams go on, new connections show the new ones, nothing is started again."""

import json
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from services.common import certificates
from tests.fakes.canary_words import PROMPT
from tests.harness.ports import free_port
from tests.harness.sse import events
from tests.harness.until import until, until_async
from tests.harness.upstream import MODEL, Script, Upstream
from tests.sidecars.envoy import Envoy
from tests.sidecars.mesh import Mesh
from tests.sidecars.mesh import certificates as run_certs
from tests.sidecars.serial import shown

WAIT_S = 10.0
BODY = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "stream": True}


def on_disk(mesh: Mesh, name: str) -> str:
    return certificates.tell((mesh.certificates / name / "tls.crt").read_bytes()).serial


def link_events(mesh: Mesh) -> list[str]:
    """What the edge says of its links to routers."""
    return re.findall(r'"relay_(?:ready|lost)"', mesh.log("edge").read_text())


async def test_a_stream_goes_on_over_a_rotation_and_what_is_new_uses_the_new(mesh: Mesh, served_by: Upstream) -> None:
    served_by.plays(Script(pauses_after=2))
    key = mesh.key(mesh.account("10"))
    processes = {name: envoy.pid for name, envoy in mesh.envoys.items()}
    await until_async(lambda: link_events(mesh), "the edge has its link to the router")
    places = {"public": mesh.public, **mesh.inbound}
    before = {name: on_disk(mesh, name) for name in places}
    trusted = ssl.create_default_context(cafile=str(mesh.authority))
    async with httpx.AsyncClient(verify=trusted, timeout=60, trust_env=False) as client:
        async with client.stream(
            "POST", f"{mesh.public_url}/v1/chat/completions", json=BODY, headers={"authorization": f"Bearer {key}"}
        ) as response:
            coming = events(response)
            seen = [await anext(coming), await anext(coming)]
            links = link_events(mesh)
            run_certs(mesh.certificates, "renew")
            after = {name: on_disk(mesh, name) for name in places}
            assert not set(before.values()) & set(after.values())
            for name, address in places.items():
                await until_async(
                    lambda address=address, name=name: (  # type: ignore[misc]
                        shown(address, mesh.authority, mesh.certificates / "edge") == after[name]
                    ),
                    f"the {name} sidecar shows its new certificate",
                )
            served_by.go()
            seen += [payload async for payload in coming]
        assert seen[-1] == "[DONE]"
        pieces = [choice["delta"].get("content", "") for frame in seen[:-1] for choice in json.loads(frame)["choices"]]
        assert "".join(pieces) == "Hello world!"
        # And another, over connections of whatever age.
        served_by.plays(Script())
        answer = await client.post(
            f"{mesh.public_url}/v1/chat/completions",
            json=BODY | {"stream": False},
            headers={"authorization": f"Bearer {key}"},
        )
        assert answer.status_code == 200
    assert {name: envoy.pid for name, envoy in mesh.envoys.items()} == processes
    assert link_events(mesh) == links


def told_to_leave(mesh: Mesh) -> int:
    """How many connections to the router were told, by the router's sidecar, that nothing new may come over them."""
    return mesh.envoys["edge"].statistic("cluster.router-1.upstream_cx_close_notify")


async def test_a_stream_outlives_the_age_of_its_connection(mesh: Mesh, served_by: Upstream) -> None:
    served_by.plays(Script(pauses_after=1))
    headers = {"authorization": f"Bearer {mesh.key(mesh.account('10'))}"}
    await until_async(lambda: link_events(mesh), "the edge has its link to the router")
    trusted = ssl.create_default_context(cafile=str(mesh.authority))
    async with (
        httpx.AsyncClient(verify=trusted, timeout=60, trust_env=False) as client,
        client.stream("POST", f"{mesh.public_url}/v1/chat/completions", json=BODY, headers=headers) as response,
    ):
        coming = events(response)
        await anext(coming)
        links = link_events(mesh)
        # The first that came to its age is the oldest, on which the relay is.
        await until_async(lambda: told_to_leave(mesh), "the relay's connection has come to its age")
        served_by.go()
        assert [payload async for payload in coming][-1] == "[DONE]"
    assert link_events(mesh) == links


class Listener:
    """A router's place that notes what certificate each caller shows, and lets it go."""

    def __init__(self, mesh: Mesh) -> None:
        folder = mesh.certificates / "router"
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        self.context.load_verify_locations(folder / "ca.crt")
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.context.set_alpn_protocols(["h2"])
        self.shown: list[str] = []
        self.own = socket.create_server(("127.0.0.1", 0))
        self.port = self.own.getsockname()[1]
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self.own.accept()
            except OSError:
                return
            connection.settimeout(WAIT_S)
            try:
                with self.context.wrap_socket(connection, server_side=True) as caller:
                    der = caller.getpeercert(binary_form=True)
                    self.shown.append(certificates.tell(ssl.DER_cert_to_PEM_cert(der or b"").encode()).serial)
            except OSError:
                continue

    def close(self) -> None:
        """Also wakes whoever accepts."""
        self.own.shutdown(socket.SHUT_RDWR)
        self.own.close()
        self.thread.join()


@pytest.fixture
def listener(mesh: Mesh) -> Iterator[Listener]:
    made = Listener(mesh)
    made.thread.start()
    yield made
    made.close()


def test_a_caller_shows_its_new_certificate(mesh: Mesh, listener: Listener, tmp_path: Path) -> None:
    environment = dict(mesh.environment) | {
        "SPEEDINFER_SIDECAR__ROUTERS": f"127.0.0.1:{listener.port}",
        "SPEEDINFER_EDGE__ROUTER_TARGET": f"127.0.0.1:{free_port()}",
        "SPEEDINFER_EDGE__BILLING_TARGET": f"127.0.0.1:{free_port()}",
        "SPEEDINFER_SIDECAR__ADMIN_LISTEN": f"127.0.0.1:{free_port()}",
    }
    # Its health checks come again and again, each with a connection of its own, since nobody answers.
    with Envoy(tmp_path, "operator", environment):
        old = on_disk(mesh, "operator")
        until(lambda: old in listener.shown, "the caller shows its certificate")
        run_certs(mesh.certificates, "renew", "operator")
        new = on_disk(mesh, "operator")
        assert new != old
        until(lambda: new in listener.shown, "the caller shows its new certificate")
