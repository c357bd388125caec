"""Which headers of a client reach a worker, and which of a worker's reach a client: those of a list, through the product."""

import json
import socket
from collections.abc import Mapping

import pytest

from tests.fakes import scripts
from tests.fakes.scenario import Answered, Scenario
from tests.fakes.scripts import Script
from tests.harness.stage import Customer, Stage

CANARY = "canary-7c1d"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
# What a worker is told: by the connection itself, and of the request its id and its trace.
TO_WORKER = frozenset({
    "host", "user-agent", "accept", "accept-encoding", "content-type", "content-length", "authorization", "x-request-id",
    "traceparent", "tracestate",
})  # fmt: skip
TO_CLIENT = frozenset({
    "content-type", "content-length", "transfer-encoding", "connection", "date", "server", "cache-control", "x-request-id",
    "x-client-request-id", "openai-processing-ms", "x-speedinfer-worker", "retry-after", "x-should-retry",
    "x-accel-buffering",
})  # fmt: skip
# Each with a value that can be found again.
FROM_CLIENT = (
    "cookie", "x-api-key", "api-key", "openai-organization", "openai-project", "openai-beta", "x-stainless-lang",
    "proxy-authorization", "proxy-connection", "keep-alive", "x-named-hop-by-hop", "forwarded", "x-forwarded-for",
    "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "true-client-ip", "via", "x-amz-security-token",
    "x-goog-iap-jwt-assertion", "x-speedinfer-worker", "x-speedinfer-admin", "x-gw-identity", "x-http-method-override",
    "x-original-url", "x-rewrite-url", "accept", "accept-language", "accept-encoding", "user-agent", "origin", "referer",
    "range", "if-none-match", "if-match", "cache-control", "pragma", "baggage", "b3", "x-b3-traceid",
    "x-cloud-trace-context", "idempotency-key", "x-client-request-id", "x-request-id", "prefer", "priority", "early-data",
    "content-language", "content-disposition", "content-location", "link", "location", "te", "x_underscored",
)  # fmt: skip
FROM_WORKER = (
    "set-cookie", "server", "via", "location", "content-location", "refresh", "link", "alt-svc", "www-authenticate",
    "proxy-authenticate", "authorization", "x-api-key", "x-request-id", "x-client-request-id", "x-speedinfer-worker",
    "openai-processing-ms", "openai-organization", "openai-version", "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-tokens", "x-should-retry", "x-powered-by", "x-runtime", "x-trace-id", "traceparent",
    "access-control-allow-origin", "access-control-allow-credentials", "content-security-policy",
    "strict-transport-security", "clear-site-data", "cache-control", "etag", "last-modified", "expires", "age", "vary",
    "content-disposition", "content-language", "trailer", "warning", "x-accel-redirect", "x-accel-buffering", "x-sendfile",
    "x-content-type-options", "report-to", "nel", "server-timing", "x-envoy-upstream-service-time", "sourcemap",
)  # fmt: skip
POINTERS = {name.replace("-", "_"): f"{CANARY}-{name}" for name in FROM_WORKER}


def ask(
    stage: Stage, customer: Customer, *, stream: bool, headers: Mapping[str, str]
) -> tuple[int, dict[str, str], str]:
    """A request as bytes; the status, the answer's headers, and everything that came."""
    body = json.dumps({"model": "acme/model-1", "messages": [{"role": "user", "content": "Hi."}], "stream": stream})
    fields = {
        "Host": "gateway.test",
        "Authorization": f"Bearer {customer.key}",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close, x-named-hop-by-hop",
        **headers,
    }
    lines = ["POST /v1/chat/completions HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", body]
    heard = b""
    with socket.create_connection(("127.0.0.1", stage.product.ports["edge"]), timeout=30) as connection:
        connection.sendall("\r\n".join(lines).encode())
        while part := connection.recv(65536):
            heard += part
    head, _, _ = heard.decode().partition("\r\n\r\n")
    first, *rest = head.split("\r\n")
    pairs = [line.split(": ", 1) for line in rest]
    assert len(pairs) == len({name.lower() for name, _ in pairs}), "a header came twice"
    return int(first.split(" ")[1]), {name.lower(): value for name, value in pairs}, heard.decode()


def scenario(script: Script, *, stream: bool) -> Scenario:
    return Scenario(
        "headers", (), script, Answered("Hello", 12, 5), stream=stream, config={"api_key": "the-workers-own"}
    )


def with_headers(steps: list[scripts.Step]) -> list[scripts.Step]:
    """A stream whose head has all of FROM_WORKER."""
    more = "".join(f"{name}: {CANARY}-{name}\r\n" for name in FROM_WORKER).encode()
    return [scripts.SSE_HEAD[:-2] + more + b"\r\n", *steps[1:]]


COUNTS = scripts.usage(12, 5)
WHOLE = scripts.chat_whole("headers", "Hello", COUNTS)
ANSWERS: dict[str, tuple[list[scripts.Step], bool, int]] = {
    "whole": ([scripts.json_answer(WHOLE, **POINTERS)], False, 200),
    "stream": (with_headers(scripts.chat_stream("headers", ["Hello"], COUNTS)), True, 200),
    "refused": ([scripts.json_answer({"message": "no", "code": 400}, 400, **POINTERS)], False, 400),
    "failed": ([scripts.json_answer({"message": "no"}, 500, **POINTERS)], True, 502),
    "redirected": ([scripts.answer(307, b"", **POINTERS)], True, 502),
    "unauthorised": ([scripts.json_answer({"message": "no"}, 401, **POINTERS)], False, 502),
}


@pytest.mark.parametrize("stream", [True, False])
def test_of_a_clients_headers_the_worker_gets_its_trace_and_nothing_else(
    stage: Stage, customer: Customer, stream: bool
) -> None:
    answer: list[scripts.Step] = (
        scripts.chat_stream("headers", ["Hello"], COUNTS) if stream else [scripts.json_answer(WHOLE)]
    )
    stage.play(scenario(answer, stream=stream))
    sent = {name: f"{CANARY}-{name}" for name in FROM_CLIENT} | {"traceparent": TRACE, "tracestate": "vendor=1"}
    status, headers, _ = ask(stage, customer, stream=stream, headers=sent)
    assert status == 200
    (received,) = stage.received()
    assert set(received.headers) == TO_WORKER
    assert CANARY not in json.dumps(received.headers)
    assert customer.key not in json.dumps(received.headers)
    assert received.headers["authorization"] == "Bearer the-workers-own"
    assert received.headers["x-request-id"] == headers["x-request-id"]
    assert (received.headers["traceparent"], received.headers["tracestate"]) == (TRACE, "vendor=1")
    # Its own id comes back to it.
    assert headers["x-client-request-id"] == f"{CANARY}-x-client-request-id"


@pytest.mark.parametrize("kind", ANSWERS)
def test_of_a_workers_headers_the_client_gets_none(stage: Stage, customer: Customer, kind: str) -> None:
    script, stream, expected = ANSWERS[kind]
    stage.play(scenario(script, stream=stream))
    status, headers, heard = ask(stage, customer, stream=stream, headers={})
    assert status == expected
    assert set(headers) <= TO_CLIENT, set(headers) - TO_CLIENT
    assert CANARY not in heard
    assert headers["server"] == "speedinfer"
    if expected == 200:
        stage.assert_charged(customer, scenario(script, stream=stream))
    else:
        assert stage.product.settled(customer.account_id)["balance"] == "10.000000000"
