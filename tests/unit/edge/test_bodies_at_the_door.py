"""Bodies at the public listener: what is no JSON, too large, or compressed."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator

import pytest
from speedinfer.router.v1.frame_pb2 import Frame
from speedinfer.router.v1.inference_pb2 import GenerateItem

from tests.fakes.scripted_router import accepted, data, end
from tests.unit.edge.conftest import Make, Stand


async def well(_item: GenerateItem) -> AsyncIterator[Frame]:
    yield accepted()
    yield data(b'{"id":"c1","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":5}}')
    yield end()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"", "empty"),
        (b"{", "JSON"),
        (b"[]", "object"),
        (b'"hi"', "object"),
        (b"null", "object"),
        (b'{"a":NaN}', "JSON"),
        (b'{"a":"\xff"}', "JSON"),
        (b'{"a":"\\ud800"}', "JSON"),
        (b'{"a":1}x', "JSON"),
        (b'{"a":' + b"[" * 65 + b"]" * 65 + b"}", "nested"),
        (b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", "JSON"),
        (b"\xef\xbb\xbf{}", "JSON"),
    ],
)
async def test_what_is_no_json_object_is_400(stand: Stand, text: bytes, word: str) -> None:
    answer = await stand.post(text)
    assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
    assert word in answer.error["message"]
    assert stand.billing.calls == []


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_compressed_bodies_are_read_and_bombs_are_not(make_stand: Make, encoding: str) -> None:
    stand = await make_stand(max_body_bytes=1_000_000)
    stand.router.script = well
    pack = gzip.compress if encoding == "gzip" else zlib.compress
    headers = {"Content-Encoding": encoding}
    assert (await stand.post(pack(json.dumps(stand.body()).encode()), headers=headers)).status == 200
    bomb = await stand.post(pack(b" " * 20_000_000), headers=headers)
    assert (bomb.status, bomb.error["code"]) == (413, "request_too_large")
    broken = await stand.post(pack(b"{}" * 900)[:-9], headers=headers)
    assert broken.status == 400


async def test_bodies_that_are_too_large_with_and_without_a_length(make_stand: Make) -> None:
    stand = await make_stand(max_body_bytes=1000)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b" " * 100

    assert (await stand.post(b" " * 1001)).error["code"] == "request_too_large"
    headers = {"Content-Type": "application/json"}
    async with stand.session.post("/v1/chat/completions", data=chunks(), headers=headers) as response:
        assert response.status == 413


async def test_compressed_data_that_makes_nothing_has_its_bound_too(make_stand: Make) -> None:
    stand = await make_stand(max_body_bytes=1000)
    empty_blocks = b"\x78\x9c" + b"\x00\x00\x00\xff\xff" * 300

    async def chunks() -> AsyncIterator[bytes]:
        yield empty_blocks

    headers = {"Content-Type": "application/json", "Content-Encoding": "deflate"}
    async with stand.session.post("/v1/chat/completions", data=chunks(), headers=headers) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (413, "request_too_large")


@pytest.mark.parametrize("headers", [{"Content-Type": "text/plain"}, {"Content-Encoding": "br"}])
async def test_what_is_not_json_is_415(stand: Stand, headers: dict[str, str]) -> None:
    answer = await stand.post(b"{}", headers=headers)
    assert (answer.status, answer.error["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("kind", "size", "status"),
    [("application/json", 1001, 413), ("text/plain", 1000, 415)],
    ids=["too large", "no JSON"],
)
async def test_a_refusal_waits_for_a_client_that_writes_before_it_reads(
    make_stand: Make, kind: str, size: int, status: int
) -> None:
    stand = await make_stand(max_body_bytes=1000)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: e\r\ncontent-type: {kind}\r\ncontent-length: {size}\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.edge.port)
    writer.write(head.encode() + b" " * (size - 1))
    answer = asyncio.ensure_future(reader.readline())
    # Whoever comes later is answered sooner.
    assert (await stand.post(b" " * 1001)).status == 413
    assert not answer.done()
    writer.write(b" ")
    assert f" {status} ".encode() in await answer
    writer.close()
    await writer.wait_closed()


async def test_a_body_far_beyond_its_bound_is_not_waited_for(make_stand: Make) -> None:
    stand = await make_stand(max_body_bytes=1000)
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.edge.port)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: e\r\ncontent-length: 2001\r\n\r\n")
    assert b" 413 " in await reader.readline()
    writer.close()
    await writer.wait_closed()
