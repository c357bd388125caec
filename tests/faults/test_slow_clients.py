"""Clients that are slow on purpose, or too many, at the whole product: told so, cut, and no hindrance to others."""

import json
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.harness.product import Product
from tests.harness.until import until
from tests.harness.upstream import MODEL, Script, Upstream

MAX_CONNECTIONS = 4
PREFIX = "SPEEDINFER_EDGE__LIMITS__"
LIMITS = {
    f"{PREFIX}BODY_TIMEOUT_S": "0.5",
    f"{PREFIX}IDLE_CONNECTION_S": "0.5",
    f"{PREFIX}MAX_CONNECTIONS": str(MAX_CONNECTIONS),
    f"{PREFIX}MAX_BODY_BYTES": "1000000",
    f"{PREFIX}MAX_BODIES_BYTES": "1000000",
}


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with Upstream() as upstream, Product(tmp_path_factory.mktemp("slow"), LIMITS) as product:
        upstream.plays(Script())
        product.price(MODEL)
        product.register(upstream.registration())
        yield product


def connect(product: Product) -> socket.socket:
    return socket.create_connection(("127.0.0.1", product.ports["edge"]), timeout=30)


def heard(connection: socket.socket) -> bytes:
    """Everything until the edge closes."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def ask(product: Product, key: str) -> int:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi."}]}
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(f"{product.base_url}/chat/completions", json=body, headers=headers, timeout=30).status_code


def test_a_body_that_does_not_come_is_a_408_and_costs_nothing(product: Product) -> None:
    account_id = product.account()
    key = product.key(account_id)
    with connect(product) as slow:
        slow.sendall(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
            "Content-Type: application/json\r\nContent-Length: 900000\r\n\r\n{".encode()
        )
        # What it announces takes no room from others.
        assert ask(product, key) == 200
        head = slow.recv(65536)
        assert head.startswith(b"HTTP/1.1 408 ")
        assert json.loads(head.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_timeout"
    assert len([entry for entry in product.entries(account_id) if entry["kind"] == "charge"]) == 1
    assert product.settled(account_id)["held"] == "0.000000000"


@pytest.mark.parametrize("begun", [b"", b"POST", b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Slow: "])
def test_a_head_that_does_not_come_ends_its_connection(product: Product, begun: bytes) -> None:
    with connect(product) as slow:
        slow.sendall(begun)
        assert heard(slow) == b""


def test_connections_beyond_the_bound_are_refused_and_the_others_live(product: Product) -> None:
    account_id = product.account()
    key = product.key(account_id)
    live = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    until(lambda: ask(product, key) == 200, "earlier connections are gone", 30)
    first = connect(product)
    first.sendall(live)
    assert first.recv(65536).startswith(b"HTTP/1.1 200 ")
    crowd = [connect(product) for _ in range(MAX_CONNECTIONS)]
    refused = heard(crowd[-1])
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert json.loads(refused.partition(b"\r\n\r\n")[2])["error"]["code"] == "overloaded"
    first.sendall(live)
    assert first.recv(65536).startswith(b"HTTP/1.1 200 ")
    for each in (first, *crowd):
        each.close()
    until(lambda: ask(product, key) == 200, "there is room again", 30)
