"""What the manifests of deploy/kubernetes run, run here: Envoy takes its configuration, probes tell what they should, and
billing takes the key that seals as its init container leaves it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from services.billing import seal_key
from services.common import rpc
from services.common.errors import ConfigurationError
from tests.harness import command_line
from tests.harness.manifests import BUILDS, ROLES, containers, environment, pod
from tests.harness.ports import free_port
from tests.harness.product import Product
from tests.harness.until import until_async
from tests.sidecars.envoy import validate
from tests.sidecars.mesh import certificates, empty

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
EXAMPLE = BUILDS["example"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("kubernetes") / "certificates")


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    with Product(tmp_path / "product") as product:
        yield product


@pytest.mark.parametrize("role", ROLES)
def test_envoy_takes_what_the_init_container_writes(kept: Path, tmp_path: Path, role: str) -> None:
    arguments = containers(pod(EXAMPLE, role))["sidecar-configuration"]["args"]
    *whose, output = arguments
    assert output == f"/envoy/{role}"
    # Here the volumes are elsewhere.
    moved = {"SPEEDINFER_SIDECAR__CERTIFICATES": str(kept), "SPEEDINFER_CONFIG": str(empty(kept.parent))}
    code, _, errors = command_line.run([*whose, str(tmp_path)], None, environment(EXAMPLE, role) | moved)
    assert (code, errors) == (0, "")
    assert validate(tmp_path / "envoy.yaml") == ""


def probe(role: str, name: str, address: str) -> int:
    """The exit code of a probe's command, asking at `address`; the kubelet wants 0."""
    (service,) = pod(EXAMPLE, role)["containers"]
    interpreter, *arguments = service[name]["exec"]["command"]
    assert interpreter == "python"
    own = environment(EXAMPLE, role)[f"SPEEDINFER_{role.upper()}__LISTEN"]
    assert own in arguments[-1], "a probe asks where its service listens"
    arguments[-1] = arguments[-1].replace(own, address)
    within_s = service[name]["timeoutSeconds"]
    # A machine that is busy with other tests is given more.
    done = subprocess.run([sys.executable, *arguments], capture_output=True, timeout=6 * within_s, check=False)
    return done.returncode


def probes(role: str, address: str) -> list[bool]:
    return [probe(role, name, address) == 0 for name in PROBES]


def test_probes_of_services_that_work_and_of_one_that_is_gone(product: Product) -> None:
    for role in ROLES:
        assert probes(role, product.address(role)) == [True, True, True], role
    product.kill("billing")
    assert probes("billing", product.address("billing")) == [False, False, False]
    # An edge without billing gets no work, and is not restarted for it.
    assert probes("edge", product.address("edge")) == [True, False, True]


@pytest.mark.parametrize("role", ["router", "billing"])
async def test_who_answers_but_does_not_serve_is_not_restarted(role: str) -> None:
    server = rpc.Server()
    address = f"127.0.0.1:{free_port()}"
    await server.start(address)
    try:
        await server.set_serving(False)
        assert await until_async(lambda: probes(role, address), "the probes") == [False, False, True]
    finally:
        await server.drain(0)


def test_billing_takes_the_key_as_its_init_container_leaves_it(tmp_path: Path) -> None:
    secret, kept = tmp_path / "seal-secret", tmp_path / "seal"
    secret.mkdir()
    kept.mkdir()
    key = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (secret / "seal_key").write_bytes(key)
    # As Kubernetes shows a Secret to a user that does not own it.
    (secret / "seal_key").chmod(0o440)
    with pytest.raises(ConfigurationError, match="can be read by others"):
        seal_key.load(secret / "seal_key")
    command = containers(pod(EXAMPLE, "billing"))["seal-key"]["command"]
    subprocess.run([f"{tmp_path}{each}" if each.startswith("/") else each for each in command], check=True)
    read_from = Path(f"{tmp_path}{environment(EXAMPLE, 'billing')['SPEEDINFER_BILLING__SEAL_KEY']}")
    assert seal_key.load(read_from).key_id
