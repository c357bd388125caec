"""Each kind of bad input: its line of the contract's error table, the whole envelope, and nothing reserved."""

import gzip
import json
import time
from typing import Any

import httpx
import pytest

from tests.blackbox.conftest import Customer, customer_of
from tests.harness.product import Product
from tests.harness.reservations import reservations
from tests.harness.upstream import MODEL, Upstream

CHAT = "/v1/chat/completions"
GOOD: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}]}
JSON = {"content-type": "application/json"}


@pytest.fixture(autouse=True)
def untouched(upstream: Upstream, product: Product, customer: Customer) -> Any:
    """Whatever a test of this file sends: no money is touched and no worker is asked."""
    yield
    assert product.balance(customer.account_id)["balance"] == "10.000000000"
    assert reservations(product, customer.account_id) == []
    assert upstream.seen.bodies == []


def refused(answer: httpx.Response, status: int, code: str | None = None) -> dict[str, Any]:
    """The error of a refusal, once its envelope is what the contract says."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("application/json")
    body = answer.json()
    assert list(body) == ["error"]
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    if code is not None:
        assert error["code"] == code
    return error


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"nonsense",
        b"[]",
        b'"text"',
        b"null",
        b'{"model": NaN}',
        b'{"model": "a",}',
        b'{"a": "\xff\xfe"}',
        b'{"model": "\\ud800"}',
        b"[" * 100_000,
        b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    ],
    ids=["empty", "open", "word", "list", "text", "null", "NaN", "comma", "bytes", "surrogate", "nesting", "deep"],
)
async def test_what_is_not_json_is_a_400(text: bytes, customer: Customer) -> None:
    error = refused(await customer.http.post(CHAT, content=text, headers=JSON), 400)
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": 1}, "model"),
        ({"model": None}, "model"),
        ({"messages": "hello"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [1]}, "messages"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "ten"}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"n": 0}, "n"),
        ({"n": "2"}, "n"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": "usage", "stream": True}, "stream_options"),
    ],
    ids=lambda value: json.dumps(value)[:40] if isinstance(value, dict) else None,
)
async def test_a_wrong_value_is_a_400_that_names_it(change: dict[str, Any], param: str, customer: Customer) -> None:
    error = refused(await customer.http.post(CHAT, json=GOOD | change), 400)
    assert error["type"] == "invalid_request_error"
    assert (error["param"] or "").startswith(param)


async def test_a_model_that_is_not_there_is_a_404(customer: Customer) -> None:
    refused(await customer.http.post(CHAT, json=GOOD | {"model": "acme/none"}), 404, "model_not_found")


async def test_a_model_that_the_key_may_not_use_is_a_403(product: Product, customer: Customer) -> None:
    async with customer_of(product, customer.account_id, "--models", "acme/other") as other:
        refused(await other.http.post(CHAT, json=GOOD), 403, "model_not_allowed")


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer nonsense",
        "Bearer sk-si-000000000000",
        "Basic dXNlcjpwYXNz",
        "Bearer sk-si-" + "0" * 50,
    ],
)
async def test_a_bad_key_is_a_401(header: str | None, product: Product) -> None:
    async with product.client() as client:
        headers = {} if header is None else {"authorization": header}
        refused(await client.post(CHAT, json=GOOD, headers=headers), 401, "invalid_api_key")


async def test_a_revoked_key_is_a_401_within_a_second(product: Product, customer: Customer) -> None:
    async with customer_of(product, customer.account_id) as other:
        refused(await other.http.post(CHAT, json=GOOD | {"max_tokens": 0}), 400)
        keys = product.command("keys", "list", "--account", customer.account_id)
        [key_id] = [one["key_id"] for one in keys if other.key[6:18] in one["key_id"]]
        assert product.command("keys", "revoke", key_id)["status"] == "revoked"
        deadline = time.monotonic() + 2
        answer = await other.http.post(CHAT, json=GOOD | {"model": "acme/none"})
        while answer.status_code != 401 and time.monotonic() < deadline:
            answer = await other.http.post(CHAT, json=GOOD | {"model": "acme/none"})
        refused(answer, 401, "invalid_api_key")


async def test_another_content_type_is_a_415(customer: Customer) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = await customer.http.post(CHAT, content=json.dumps(GOOD), headers={"content-type": kind})
        refused(answer, 415, "unsupported_media_type")


async def test_a_body_over_the_limit_is_a_413(customer: Customer) -> None:
    body = json.dumps(GOOD | {"user": "x" * (33 * 1024 * 1024)})
    refused(await customer.http.post(CHAT, content=body, headers=JSON), 413, "request_too_large")


async def test_a_body_over_the_limit_without_a_length_is_a_413(customer: Customer) -> None:
    async def pieces() -> Any:
        yield b'{"user":"'
        for _ in range(33):
            yield b"x" * 1024 * 1024
        yield b'"}'

    refused(await customer.http.post(CHAT, content=pieces(), headers=JSON), 413, "request_too_large")


async def test_a_body_that_is_over_the_limit_once_unpacked_is_a_413(customer: Customer) -> None:
    packed = gzip.compress(json.dumps(GOOD | {"user": "x" * (33 * 1024 * 1024)}).encode())
    assert len(packed) < 100_000
    answer = await customer.http.post(CHAT, content=packed, headers=JSON | {"content-encoding": "gzip"})
    refused(answer, 413, "request_too_large")


async def test_an_unknown_path_is_a_404_and_a_wrong_method_a_405(customer: Customer) -> None:
    refused(await customer.http.get("/v1/nonsense"), 404, "unknown_url")
    refused(await customer.http.get("/nonsense"), 404, "unknown_url")
    refused(await customer.http.get(CHAT), 405)
    refused(await customer.http.delete("/v1/models"), 405)


async def test_a_size_refusal_comes_before_the_key_and_the_key_before_the_body(product: Product) -> None:
    async with product.client() as client:
        refused(await client.post(CHAT, content=b"{", headers={"content-type": "text/plain"}), 415)
        refused(await client.post(CHAT, content=b"{", headers=JSON), 401)
