"""Group P, bodies: what is not one JSON object in UTF-8 is refused before anything is reserved or dispatched."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.faults.well import WELL
from tests.harness import http_client
from tests.harness.stage import MODEL, Customer, Stage

CHAT = "/chat/completions"
JSON = {"content-type": "application/json"}
GOOD: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}]}
TEXT = json.dumps(GOOD).encode()
pytestmark = pytest.mark.usefixtures("untouched")


def member(text: bytes) -> bytes:
    """A good body with one more member, whose value is `text`."""
    return TEXT[:-1] + b',"odd":' + text + b"}"


def refused(stage: Stage, answer: httpx.Response, status: int, code: str | None = None) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("application/json")
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["code"] == code
    assert stage.received() == []
    return error


DEEP = 100_000
NOT_AN_OBJECT = {
    "open": b"{",
    "empty": b"",
    "blank": b" \n",
    "list": b"[]",
    "text": b'"hi"',
    "number": b"1",
    "null": b"null",
    "word": b"nonsense",
    "bytes-in-a-text": member(b'"\xff"'),
    "bytes-in-a-name": TEXT[:-1] + b',"\xc3":1}',
    "bytes-outside": TEXT + b"\xff",
    "overlong": member(b'"\xc0\xaf"'),
    "surrogate-as-bytes": member(b'"\xed\xa0\x80"'),
    "surrogate-escaped": member(b'"\\ud800"'),
    "surrogates-swapped": member(b'"\\ude00\\ud83d"'),
    "surrogate-in-a-name": TEXT[:-1] + b',"\\ud800":1}',
    "NaN": member(b"NaN"),
    "Infinity": member(b"-Infinity"),
    "comma-at-the-end": TEXT[:-1] + b",}",
    "comma-in-a-list": member(b"[1,]"),
    "comment": b"/* hi */" + TEXT,
    "byte-order-mark": b"\xef\xbb\xbf" + TEXT,
    "UTF-16": json.dumps(GOOD).encode("utf-16"),
    "UTF-32": json.dumps(GOOD).encode("utf-32"),
    "two-objects": TEXT + TEXT,
    "two-lines": TEXT + b"\n" + TEXT,
    "control-character": member(b'"\x00"'),
    "line-break": member(b'"a\nb"'),
    "huge-exponent": member(b"1e999"),
    "ten-thousand-digits": member(b"1" * 10_000),
    "leading-zero": member(b"01"),
    "plus": member(b"+1"),
    "hexadecimal": member(b"0x10"),
    "single-quotes": TEXT.replace(b'"', b"'"),
    "escape-unknown": member(b'"\\x41"'),
    "deep-open-lists": b"[" * DEEP,
    "deep-lists": member(b"[" * DEEP + b"]" * DEEP),
    "deep-objects": member(b'{"a":' * DEEP + b"1" + b"}" * DEEP),
    "65-deep": member(b"[" * 64 + b"]" * 64),
    "a-million-lists": member(b"[" + b"[]," * 1_000_000 + b"[]]"),
    "too-many-members": TEXT[:-1] + b"".join(b',"k%d":1' % number for number in range(2000)) + b"}",
}


@pytest.mark.parametrize("body", NOT_AN_OBJECT.values(), ids=NOT_AN_OBJECT.keys())
async def test_p1_what_is_no_json_object_is_refused(body: bytes, stage: Stage, http: httpx.AsyncClient) -> None:
    error = refused(stage, await http.post(CHAT, content=body, headers=JSON), 400)
    assert "body" in error["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (TEXT[:-1] + b',"model":"other"}', "model"),
        (TEXT[:-1] + b',"max_tokens":1,"max_tokens":2}', "max_tokens"),
        (TEXT[:-1] + b',"m\\u0061x_tokens":1,"max_tokens" :2}', "max_tokens"),
        (TEXT.replace(b'"role"', b'"content":"long","role"'), "content"),
        (member(b'{"deep":[{"twin":1,"twin":1}]}'), "twin"),
    ],
    ids=["model", "limit", "escaped", "content", "deep"],
)
async def test_p1_a_member_that_stands_twice_is_refused_by_name(
    body: bytes, param: str, stage: Stage, http: httpx.AsyncClient
) -> None:
    assert refused(stage, await http.post(CHAT, content=body, headers=JSON), 400)["param"] == param


LARGE = json.dumps(GOOD | {"user": "x" * (33 * 1024 * 1024)}).encode()


async def test_a_body_over_the_limit(stage: Stage, http: httpx.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(LARGE), 1024 * 1024):
            yield LARGE[start : start + 1024 * 1024]

    refused(stage, await http.post(CHAT, content=LARGE, headers=JSON), 413, "request_too_large")
    refused(stage, await http.post(CHAT, content=pieces(), headers=JSON), 413, "request_too_large")


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKED = gzip.compress(TEXT)
WRONGLY_PACKED: dict[str, tuple[str, bytes, int, str | None]] = {
    "gzip-bomb": ("gzip", gzip.compress(LARGE, 1), 413, "request_too_large"),
    "deflate-bomb": ("deflate", zlib.compress(LARGE, 1), 413, "request_too_large"),
    "cut-off": ("gzip", PACKED[:-9], 400, None),
    "without-its-checksum": ("gzip", PACKED[:-1], 400, None),
    "wrong-checksum": ("gzip", PACKED[:-8] + b"\0" * 8, 400, None),
    "not-packed": ("gzip", TEXT, 400, None),
    "packed-otherwise": ("gzip", zlib.compress(TEXT), 400, None),
    "raw-deflate": ("deflate", _raw_deflate(TEXT), 400, None),
    "two-members": ("gzip", PACKED + PACKED, 400, None),
    "a-thousand-members": ("gzip", PACKED + gzip.compress(b"") * 1000, 400, None),
    "something-after": ("gzip", PACKED + b"x", 400, None),
    "twice": ("gzip, gzip", gzip.compress(PACKED), 415, "unsupported_media_type"),
    "brotli": ("br", b"x", 415, "unsupported_media_type"),
    "unknown": ("gzip2", PACKED, 415, "unsupported_media_type"),
}


@pytest.mark.parametrize(("coding", "body", "status", "code"), WRONGLY_PACKED.values(), ids=WRONGLY_PACKED.keys())
async def test_compressed_bodies_that_are_wrong(
    coding: str, body: bytes, status: int, code: str | None, stage: Stage, http: httpx.AsyncClient
) -> None:
    answer = await http.post(CHAT, content=body, headers=JSON | {"content-encoding": coding})
    refused(stage, answer, status, code)


async def test_two_headers_that_each_name_a_coding_are_two_codings(stage: Stage, http: httpx.AsyncClient) -> None:
    headers = [("content-type", "application/json"), ("content-encoding", "gzip"), ("content-encoding", "gzip")]
    refused(stage, await http.post(CHAT, content=PACKED, headers=headers), 415, "unsupported_media_type")


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp",
     "application/json; charset=utf-16", "application/json; charset=latin-1", "nonsense", "*/*"],
)  # fmt: skip
async def test_other_content_types(kind: str, stage: Stage, http: httpx.AsyncClient) -> None:
    answer = await http.post(CHAT, content=TEXT, headers={"content-type": kind})
    refused(stage, answer, 415, "unsupported_media_type")


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_other_methods(method: str, stage: Stage, http: httpx.AsyncClient) -> None:
    answer = await http.request(method, CHAT, content=TEXT, headers=JSON)
    refused(stage, answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == "POST"


async def test_a_client_that_goes_in_the_middle_of_its_body_touches_nothing(stage: Stage, asker: Customer) -> None:
    host, port = stage.product.address("edge").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /v1{CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {asker.key}\r\nContent-Length: {len(TEXT)}\r\n\r\n"
    writer.write(head.encode() + TEXT[:20])
    await writer.drain()
    writer.write_eof()
    await reader.read()
    writer.close()
    await writer.wait_closed()
    assert stage.received() == []


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, TEXT),
        ({"content-type": "Application/JSON; charset=UTF-8"}, b" \r\n\t" + TEXT + b"\n"),
        ({"content-type": "application/vnd.acme+json"}, TEXT),
        (JSON | {"content-encoding": "GZIP"}, PACKED),
        (JSON | {"content-encoding": "deflate"}, zlib.compress(TEXT)),
        (JSON | {"content-encoding": "identity"}, TEXT),
        (JSON, member(b'"' + b"[{" * 200_000 + b'"')),
        (JSON, member(b'"\\ud83d\\ude00 \\u0000"')),
        (JSON, member(b"[" * 62 + b"]" * 62)),
    ],
    ids=["bare", "spaces", "vendor", "gzip", "deflate", "identity", "brackets-in-a-text", "pair", "63-deep"],
)
async def test_good_bodies_of_every_kind_are_served_and_charged(
    headers: dict[str, str], body: bytes, stage: Stage, customer: Customer
) -> None:
    stage.play(WELL)
    key = {"authorization": f"Bearer {customer.key}"}
    async with http_client.plain(base_url=stage.product.base_url, headers=key, timeout=60) as http:
        answer = await http.post(CHAT, content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 2
    assert len(stage.received()) == 1
    stage.assert_charged(customer, WELL)
    stage.play(WELL)
