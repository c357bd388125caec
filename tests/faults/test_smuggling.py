"""A corpus of requests that hide another one, as bytes, against the edge alone, with both of aiohttp's parsers."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp.web_protocol
import pytest
from aiohttp import http_parser
from speedinfer.router.v1.frame_pb2 import Frame
from speedinfer.router.v1.inference_pb2 import GenerateItem

from services.edge import http_connections
from tests.fakes.scripted_router import accepted, data, end
from tests.faults.smuggling_corpus import CASES, EITHER, HIDDEN, NONE, ONE, REFUSED, Case
from tests.unit.edge.conftest import KEY, Make, Stand, make_stand

# A fixture.
__all__ = ["make_stand"]


async def well(_item: GenerateItem) -> AsyncIterator[Frame]:
    yield accepted()
    yield data(b'{"id":"c1","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":5}}')
    yield end()


async def play(stand: Stand, case: Case) -> tuple[list[int], list[Any], bool]:
    """The statuses of the answers, what the router was asked, and whether the edge closed the connection."""
    stand.router.items.clear()
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.edge.port)
    heard, closed = b"", False
    try:
        async with asyncio.timeout(5):
            writer.write(case.data)
            while part := await reader.read(65536):
                heard += part
        closed = True
    except TimeoutError:
        pass
    except ConnectionError:
        closed = True
    finally:
        writer.close()
    statuses = [int(status) for status in re.findall(rb"HTTP/[0-9.]+ (\d{3}) ", heard)]
    return statuses, list(stand.router.items), closed


def outcome(statuses: list[int], items: int) -> str:
    """What came of a connection, as the corpus calls it."""
    if len(statuses) != 1:
        return f"answers {statuses}"
    if items == 1 and statuses == [200]:
        return ONE
    if items:
        return f"{items} dispatched, and {statuses}"
    return REFUSED if statuses[0] in (400, 408, 413) else NONE


def test_the_corpus_is_as_large_as_it_should_be() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 100
    assert sum(HIDDEN in case.data or case.outcome != REFUSED for case in CASES) == len(CASES)
    assert sum(case.outcome == EITHER for case in CASES) <= 4


@pytest.mark.parametrize(
    "parser", [http_parser.HttpRequestParserC, http_parser.HttpRequestParserPy], ids=["C", "Python"]
)
async def test_nothing_that_is_hidden_is_ever_dispatched(
    make_stand: Make,
    monkeypatch: pytest.MonkeyPatch,
    parser: type,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(aiohttp.web_protocol, "HttpRequestParser", parser)
    monkeypatch.setitem(http_connections._OPTIONS, "lingering_time", 0.05)
    stand = await make_stand(idle_connection_s=0.05, body_timeout_s=0.2)
    stand.router.script = well
    wrong: dict[str, Any] = {}
    for case in CASES:
        statuses, items, closed = await play(stand, case)
        came = outcome(statuses, len(items))
        expected = (REFUSED, ONE) if case.outcome == EITHER else (case.outcome,)
        if came not in expected or not closed or any(HIDDEN in item.SerializeToString() for item in items):
            wrong[case.name] = came, closed
    assert wrong == {}
    # What is not well-formed may be a prompt or a key all the same.
    told = caplog.text + "".join(capfd.readouterr())
    assert not [word for word in ("hello", "Traceback", HIDDEN.decode(), KEY) if word in told]
    assert set(stand.billing.names()) == {"reserve", "settle"}
