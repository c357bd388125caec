"""Who may call what between machines: every pair of an identity and a gRPC service, and who gets no connection at all."""

import socket
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pool
from speedinfer.billing.v1 import access_pb2, account_pb2, key_pb2, price_pb2, report_pb2, reservation_pb2, seal_pb2
from speedinfer.router.v1 import inference_pb2, registry_pb2, relay_pb2

from services.common.certificates import Authority, Pair, make_authority
from services.common.listen import split
from tests.harness.ports import free_port
from tests.sidecars.envoy import Envoy
from tests.sidecars.mesh import Mesh

IDENTITIES = ("edge", "router", "billing", "finance", "operator")
EVERYBODY = set(IDENTITIES)
HEALTH, REFLECTION = "grpc.health.v1.Health/Check", "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
# The server, one method of a service, and who may call that service.
MATRIX: list[tuple[str, str, set[str]]] = [
    ("router", "speedinfer.router.v1.InferenceService/GetFleet", {"edge"}),
    ("router", "speedinfer.router.v1.RelayService/Relay", {"edge"}),
    ("router", "speedinfer.router.v1.WorkerRegistryService/ListWorkers", {"operator"}),
    ("router", HEALTH, EVERYBODY),
    ("router", REFLECTION, set()),
    ("billing", "speedinfer.billing.v1.ReservationService/Reserve", {"edge"}),
    ("billing", "speedinfer.billing.v1.AccessService/AuthorizeKeys", {"edge"}),
    ("billing", "speedinfer.billing.v1.AccountService/ListAccounts", {"operator"}),
    ("billing", "speedinfer.billing.v1.KeyService/ListKeys", {"operator"}),
    ("billing", "speedinfer.billing.v1.PriceService/ListPrices", {"operator"}),
    ("billing", "speedinfer.billing.v1.SealService/SealLedger", {"operator"}),
    ("billing", "speedinfer.billing.v1.ReportService/VerifyLedger", {"finance"}),
    ("billing", HEALTH, EVERYBODY),
    ("billing", REFLECTION, set()),
]
PROTOS = (
    *(inference_pb2, registry_pb2, relay_pb2),
    *(access_pb2, account_pb2, key_pb2, price_pb2, report_pb2, reservation_pb2, seal_pb2),
)
CALL_S = 10.0
NOW = datetime.now(UTC)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def channels(mesh: Mesh) -> Iterator[dict[tuple[str, str], grpc.Channel]]:
    """A connection of each identity to each server, straight to the server's sidecar."""
    made = {}
    for identity in IDENTITIES:
        folder = mesh.certificates / identity
        credentials = grpc.ssl_channel_credentials(
            (folder / "ca.crt").read_bytes(), (folder / "tls.key").read_bytes(), (folder / "tls.crt").read_bytes()
        )
        for server in ("router", "billing"):
            options = [("grpc.ssl_target_name_override", server), ("grpc.enable_http_proxy", 0)]
            made[identity, server] = grpc.secure_channel(mesh.inbound[server], credentials, options)
    yield made
    for channel in made.values():
        channel.close()


def call(channel: grpc.Channel, method: str, token: str) -> tuple[grpc.StatusCode, str]:
    """Call a method with an empty message, whatever its kind; how it ended."""
    speak = channel.stream_stream(f"/{method}")
    answers = speak(iter([b""]), timeout=CALL_S, metadata=[("authorization", f"Bearer {token}")])
    try:
        for _ in answers:
            pass
    except grpc.RpcError:
        pass
    return answers.code(), answers.details()


@pytest.mark.parametrize("identity", IDENTITIES)
@pytest.mark.parametrize(("server", "method", "allowed"), MATRIX, ids=[f"{row[0]} {row[1]}" for row in MATRIX])
def test_an_identity_calls_what_it_may_and_nothing_else(
    mesh: Mesh,
    channels: dict[tuple[str, str], grpc.Channel],
    server: str,
    method: str,
    allowed: set[str],
    identity: str,
) -> None:
    # With the operators' token, so that the identity alone decides.
    code, details = call(channels[identity, server], method, mesh.admin_token)
    if identity in allowed:
        # What the application itself says to an empty message.
        assert code in (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT), details
    else:
        assert (code, details) == (grpc.StatusCode.PERMISSION_DENIED, "RBAC: access denied")


def test_the_matrix_has_every_service() -> None:
    offered = {service.full_name for proto in PROTOS for service in proto.DESCRIPTOR.services_by_name.values()}
    files = {proto.DESCRIPTOR.package for proto in PROTOS}
    assert files == {"speedinfer.router.v1", "speedinfer.billing.v1"}
    assert {method.partition("/")[0] for _, method, _ in MATRIX if method.startswith("speedinfer.")} == offered
    protos = Path(__file__).parents[2] / "proto"
    written = {
        f"{'.'.join(path.relative_to(protos).parts[:-1])}.{line.split()[1]}"
        for path in protos.rglob("*.proto")
        for line in path.read_text().splitlines()
        if line.startswith("service ")
    }
    assert written == offered
    assert all(descriptor_pool.Default().FindServiceByName(name) for name in offered)


@pytest.mark.parametrize(
    "method",
    [
        "speedinfer.router.v1.InferenceService/../speedinfer.router.v1.WorkerRegistryService/ListWorkers",
        "/speedinfer.router.v1.WorkerRegistryService/ListWorkers",
        "speedinfer.router.v1.InferenceService/%2e%2e/speedinfer.router.v1.WorkerRegistryService/ListWorkers",
        "speedinfer.router.v1.InferenceServiceX/GetFleet",
        "speedinfer.router.v1.WorkerRegistryService",
        "",
    ],
)
def test_no_spelling_of_a_path_gets_past(
    mesh: Mesh, channels: dict[tuple[str, str], grpc.Channel], method: str
) -> None:
    code, _ = call(channels["edge", "router"], method, mesh.admin_token)
    assert code is grpc.StatusCode.PERMISSION_DENIED


def test_an_identity_is_no_token(mesh: Mesh, channels: dict[tuple[str, str], grpc.Channel]) -> None:
    code, _ = call(channels["operator", "billing"], "speedinfer.billing.v1.AccountService/ListAccounts", "sat-wrong")
    assert code is grpc.StatusCode.UNAUTHENTICATED


@pytest.fixture(scope="module")
def authority(mesh: Mesh) -> Authority:
    """The mesh's own CA."""
    folder = mesh.certificates / "ca"
    return Authority(Pair((folder / "tls.crt").read_bytes(), (folder / "tls.key").read_bytes()))


def with_no_certificate(_: Authority) -> None:
    return None


def of_another_ca(_: Authority) -> Pair:
    # Everything else about it is right.
    return Authority(make_authority("speedinfer.internal", NOW, DAY)).issue("edge", ["edge"], NOW, DAY)


def of_another_domain(authority: Authority) -> Pair:
    own = authority.trust_domain
    authority.trust_domain = "elsewhere.internal"
    try:
        return authority.issue("edge", ["edge"], NOW, DAY)
    finally:
        authority.trust_domain = own


def of_nobody(authority: Authority) -> Pair:
    return authority.issue("edges", ["edge"], NOW, DAY)


def expired(authority: Authority) -> Pair:
    return authority.issue("edge", ["edge"], NOW - 2 * DAY, DAY)


def public(authority: Authority) -> Pair:
    return authority.issue_public(["edge"], NOW, DAY)


def good(authority: Authority) -> Pair:
    return authority.issue("edge", ["edge"], NOW, DAY)


def first_word(address: str, trusted: Path, folder: Path, pair: Pair | None) -> bytes:
    """What a server says after the handshake and our first words of HTTP/2. SSLError or ConnectionError if it turns us away."""
    context = ssl.create_default_context(cafile=str(trusted))
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    if pair is not None:
        (folder / "pair").write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(folder / "pair")
    with (
        socket.create_connection(split(address, "inbound"), timeout=CALL_S) as plain,
        context.wrap_socket(plain) as own,
    ):
        own.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        # In TLS 1.3 a server judges our certificate when we are done already, so that a refusal comes with the first read.
        return own.recv(9)


# Who comes, and for what Envoy turns it away.
STRANGERS: list[tuple[Callable[[Authority], Pair | None], str]] = [
    (with_no_certificate, "fail_verify_no_cert"),
    (of_another_ca, "fail_verify_error"),
    (of_another_domain, "fail_verify_san"),
    (of_nobody, "fail_verify_san"),
    (expired, "fail_verify_error"),
    (public, "fail_verify_error"),
]


@pytest.mark.parametrize("server", ["router", "billing"])
@pytest.mark.parametrize(("make", "why"), STRANGERS, ids=[make.__name__ for make, _ in STRANGERS])
def test_who_is_not_known_gets_no_connection(
    mesh: Mesh,
    authority: Authority,
    tmp_path: Path,
    server: str,
    make: Callable[[Authority], Pair | None],
    why: str,
) -> None:
    counter = f"listener.{mesh.inbound[server].replace(':', '_')}.ssl.{why}"
    before = mesh.envoys[server].statistic(counter)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        first_word(mesh.inbound[server], mesh.authority, tmp_path, make(authority))
    assert mesh.envoys[server].statistic(counter) == before + 1
    # And who is known is answered, with HTTP/2's settings.
    assert first_word(mesh.inbound[server], mesh.authority, tmp_path, good(authority))[3:4] == b"\4"


@pytest.mark.parametrize("server", ["router", "billing"])
def test_no_session_outlives_the_certificate_that_it_began_with(
    mesh: Mesh, authority: Authority, tmp_path: Path, server: str
) -> None:
    # Whoever resumes one shows no certificate, and is let in with one that has expired meanwhile.
    pair = good(authority)
    (tmp_path / "pair").write_bytes(pair.certificate + pair.key)
    context = ssl.create_default_context(cafile=str(mesh.authority))
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(tmp_path / "pair")
    session: ssl.SSLSession | None = None
    for _ in range(2):
        with (
            socket.create_connection(split(mesh.inbound[server], "inbound"), timeout=CALL_S) as plain,
            context.wrap_socket(plain, session=session) as own,
        ):
            own.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
            # With its first words a server would have handed out its tickets.
            assert own.recv(9)[3:4] == b"\4"
            assert not own.session_reused
            session = own.session


@pytest.mark.parametrize("server", ["router", "billing"])
def test_plain_text_gets_no_answer(mesh: Mesh, server: str) -> None:
    with grpc.insecure_channel(mesh.inbound[server], [("grpc.enable_http_proxy", 0)]) as channel:
        code, _ = call(channel, HEALTH, "")
    assert code is grpc.StatusCode.UNAVAILABLE
    with socket.create_connection(split(mesh.inbound[server], "inbound"), timeout=CALL_S) as plain:
        plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        # Nothing, or TLS's own alert; no word of HTTP/2.
        assert plain.recv(9)[:1] in (b"", b"\x15")


def test_a_caller_looks_at_whom_it_calls(mesh: Mesh, tmp_path: Path) -> None:
    # Billing's certificate is of the same CA; where a router is looked for it is a stranger all the same.
    environment = dict(mesh.environment) | {
        "SPEEDINFER_SIDECAR__ROUTERS": mesh.inbound["billing"],
        "SPEEDINFER_EDGE__ROUTER_TARGET": (router := f"127.0.0.1:{free_port()}"),
        "SPEEDINFER_EDGE__BILLING_TARGET": (billing := f"127.0.0.1:{free_port()}"),
        "SPEEDINFER_SIDECAR__ADMIN_LISTEN": f"127.0.0.1:{free_port()}",
    }
    with Envoy(tmp_path, "operator", environment) as envoy:
        for target, expected in ((router, grpc.StatusCode.UNAVAILABLE), (billing, grpc.StatusCode.OK)):
            with grpc.insecure_channel(target, [("grpc.enable_http_proxy", 0)]) as channel:
                assert call(channel, HEALTH, "")[0] is expected
        assert envoy.statistic("cluster.router-1.ssl.fail_verify_san") > 0


def test_the_command_says_whose_sidecar_it_needs(mesh: Mesh) -> None:
    # It goes through the operator's here, and reports are finance's.
    refused = mesh.run("ledger", "list", "--account", "acct_1")
    assert refused.code == 1
    assert "the sidecar of billing does not let this identity make this call" in refused.err
