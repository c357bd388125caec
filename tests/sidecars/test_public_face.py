"""What clients find in front of an edge: TLS, both HTTP versions, bounds, and answers that are the edge's byte for byte."""

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from services.common.listen import split
from tests.fakes.canary_words import PROMPT
from tests.harness.until import until
from tests.harness.upstream import MODEL, Upstream
from tests.sidecars.front import Answer, Front, curl, problem
from tests.sidecars.mesh import Mesh

VERSIONS = [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2")]
BODY = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "stream": True}
WAIT_S = 10.0


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with Front(tmp_path_factory.mktemp("front")) as front:
        yield front


@pytest.fixture(scope="module")
def key(mesh: Mesh) -> str:
    return mesh.key(mesh.account("10"))


def ask(url: str, authority: Path, version: str, key: str, body: dict[str, object]) -> Answer:
    return curl(
        f"{url}/v1/chat/completions",
        authority,
        *(version, "-H", f"authorization: Bearer {key}", "-H", "content-type: application/json"),
        *("-H", "accept-encoding: gzip, br", "--data-binary", "@-"),
        stdin=json.dumps(body).encode(),
    )


@pytest.mark.parametrize(("option", "version"), VERSIONS)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_answer_is_the_edges_byte_for_byte(
    mesh: Mesh, upstream: Upstream, key: str, option: str, version: str, stream: bool
) -> None:
    body = BODY | {"stream": stream}
    through = ask(mesh.public_url, mesh.authority, option, key, body)
    direct = ask(mesh.url, mesh.authority, "--http1.1", key, body)
    assert (through.status, through.version) == (200, version)
    assert through.body == direct.body
    assert (b"data: [DONE]\n\n" in through.body) is stream
    of_one_request = {"x-request-id", "openai-processing-ms", "date"}
    of_a_connection = {"transfer-encoding", "connection"}
    names = (set(through.headers) | set(direct.headers)) - of_one_request - of_a_connection
    assert {name: through.headers.get(name) for name in names} == {name: direct.headers.get(name) for name in names}
    assert upstream.seen.completed == 2


@pytest.mark.parametrize(("option", "version"), VERSIONS)
def test_a_refusal_is_the_edges(mesh: Mesh, option: str, version: str) -> None:
    answer = ask(mesh.public_url, mesh.authority, option, "sk-si-none", BODY)
    assert (answer.status, answer.version, problem(answer.body)["code"]) == (401, version, "invalid_api_key")


@pytest.mark.parametrize(("option", "version"), VERSIONS)
def test_an_event_does_not_wait_for_the_next(front: Front, option: str, version: str) -> None:
    front.behind.second.clear()
    seen = []

    def look(first: bytes) -> None:
        seen.append(first)
        front.behind.second.set()

    answer = curl(f"https://{front.address}/events", front.authority, option, "--compressed", meanwhile=look)
    assert seen == [b"data: first\n\n"]
    assert answer.body == b"data: first\n\ndata: second\n\n"
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(("option", "version"), VERSIONS)
def test_nobody_brings_an_identity(front: Front, option: str, version: str) -> None:
    own = {
        "x-forwarded-client-cert": "URI=spiffe://speedinfer.internal/speedinfer/operator",
        "x-speedinfer-worker": "w",
        "x-speedinfer-account": "a",
        "x-envoy-original-path": "/admin/v1/workers",
        "x-envoy-internal": "true",
    }
    kept = {"authorization": "Bearer k", "x-request-id": "mine", "traceparent": "t", "idempotency-key": "i"}
    options = [part for name, value in (own | kept).items() for part in ("-H", f"{name}: {value}")]
    assert curl(f"https://{front.address}/v1/models", front.authority, option, *options).status == 200
    came = front.behind.came[-1]
    assert [name for name in own if name in came.headers] == []
    assert {name: came.headers[name] for name in kept} == kept


# As it is sent, and as it comes to the edge.
PATHS = [
    ("/v1/models/acme%2Fmodel-1", "/v1/models/acme/model-1"),
    ("/v1//models", "/v1/models"),
    ("/v1/x/../models", "/v1/models"),
    ("/v1/%2e%2e/livez", "/livez"),
    ("/v1/..%2f..%2flivez?q=a%2Fb", "/livez?q=a%2Fb"),
]


@pytest.mark.parametrize(("sent", "comes"), PATHS)
def test_the_edge_sees_one_form_of_a_path(front: Front, sent: str, comes: str) -> None:
    # A path with escaped slashes may be answered by a redirect to its form; nothing of ours is.
    assert curl(f"https://{front.address}{sent}", front.authority, "--http1.1").status == 200
    assert front.behind.came[-1].path == comes


LIMITS = [
    ("underscore", ["-H", "x_y: 1"], 400, "bad_request"),
    ("too many", [part for number in range(65) for part in ("-H", f"x-{number}: 1")], 431, "headers_too_large"),
    ("too long", ["-H", f"x-long: {'a' * 40_000}"], 431, "headers_too_large"),
]


@pytest.mark.parametrize(("options", "status", "code"), [row[1:] for row in LIMITS], ids=[row[0] for row in LIMITS])
def test_a_head_beyond_its_bounds_is_refused_in_the_envelope(
    front: Front, options: list[str], status: int, code: str
) -> None:
    before = len(front.behind.came)
    answer = curl(f"https://{front.address}/v1/models", front.authority, "--http1.1", *options)
    assert (answer.status, problem(answer.body)["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/json"
    assert len(front.behind.came) == before


@pytest.mark.parametrize("options", [row[1] for row in LIMITS], ids=[row[0] for row in LIMITS])
def test_nor_does_it_come_through_over_http2(front: Front, options: list[str]) -> None:
    # Envoy resets such a stream or answers it; either way the edge sees nothing of it, and the next request is served.
    before = len(front.behind.came)
    with pytest.raises((AssertionError, IndexError)):
        assert curl(f"https://{front.address}/v1/models", front.authority, "--http2", *options).status == 200
    assert len(front.behind.came) == before
    assert curl(f"https://{front.address}/v1/models", front.authority, "--http2").status == 200


def connect(front: Front, *protocols: str) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(front.authority))
    context.set_alpn_protocols(list(protocols))
    host, port = split(front.address, "public")
    return context.wrap_socket(socket.create_connection((host, port), timeout=WAIT_S), server_hostname=host)


def everything(own: socket.socket) -> bytes:
    parts = []
    while part := own.recv(65536):
        parts.append(part)
    return b"".join(parts)


def test_a_client_that_is_slow_with_its_head_is_answered_408(front: Front) -> None:
    cut = front.envoy.statistic("http.public.downstream_rq_header_timeout")
    with connect(front, "http/1.1") as own:
        own.sendall(b"GET /v1/models HTTP/1.1\r\nhost: x\r\nx-slow")
        head, _, body = everything(own).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    # By the bound on heads, and not by that on whole requests, which is longer.
    assert front.envoy.statistic("http.public.downstream_rq_header_timeout") == cut + 1
    assert problem(body)["code"] == "request_timeout"


def test_and_so_is_one_that_is_slow_with_its_body(front: Front) -> None:
    with connect(front, "http/1.1") as own:
        own.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{")
        head, _, body = everything(own).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert problem(body)["code"] == "request_timeout"


def test_an_answer_may_take_longer_than_a_request(front: Front) -> None:
    # The stand-in waits for longer than both bounds on the request, without a byte.
    front.behind.second.clear()
    waiting = curl(
        f"https://{front.address}/events",
        front.authority,
        meanwhile=lambda _: (until(lambda: slow_request_ended(front), "408", WAIT_S), front.behind.second.set())[1],
    )
    assert waiting.body.endswith(b"data: second\n\n")


def slow_request_ended(front: Front) -> bool:
    """A request that began after the stream did has run into its own bound by now."""
    with connect(front, "http/1.1") as own:
        own.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{")
        return everything(own).startswith(b"HTTP/1.1 408 ")


def test_a_crowd_at_the_door_keeps_the_edge_from_nobody(tmp_path: Path) -> None:
    with Front(tmp_path, {"SPEEDINFER_EDGE__LIMITS__MAX_CONNECTIONS": "4"}) as front, ExitStack() as crowd:
        for _ in range(4):
            crowd.enter_context(connect(front, "http/1.1"))
        with pytest.raises(OSError):
            connect(front, "http/1.1")
        # The edge begins connections of its own at any time: after a restart, or the end of one.
        for callee in front.callees:
            with socket.create_connection(split(callee, "outbound"), timeout=WAIT_S) as own:
                own.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
                assert own.recv(9)[3:4] == b"\4"


def test_both_versions_are_offered(front: Front) -> None:
    for offered, chosen in ((("h2", "http/1.1"), "h2"), (("http/1.1",), "http/1.1")):
        with connect(front, *offered) as own:
            assert own.selected_alpn_protocol() == chosen


def test_plain_text_is_no_way_in(front: Front) -> None:
    before = len(front.behind.came)
    with socket.create_connection(split(front.address, "public"), timeout=WAIT_S) as own:
        own.sendall(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
        assert everything(own)[:1] in (b"", b"\x15")
    assert len(front.behind.came) == before


def test_the_access_log_has_no_word_of_a_client(front: Front) -> None:
    word = "cormorant-slate"
    options = ["-H", f"authorization: Bearer {word}", "-H", f"user-agent: {word}", "-H", f"x-request-id: {word}"]
    url = f"https://{front.address}/v1/models/{word}?q={word}"
    assert curl(url, front.authority, "--data", word, *options).status == 200
    # Known by its length.
    made = until(
        lambda: [line for line in front.envoy.requests() if line["bytes_in"] == len(word)], "the request is in the log"
    )
    assert [(line["route"], line["status"]) for line in made] == [("/v1/models", 200)]
    assert word not in front.envoy.log.read_text()
