"""Connections to workers that do not come about, hang on a name, or break while they are read: each transport over HTTP."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from speedinfer.common.v1.operation_pb2 import OPERATION_COMPLETION
from speedinfer.router.v1.frame_pb2 import FAILURE_REASON_TIMEOUT, FAILURE_REASON_UPSTREAM

from services.common.settings import RouterLimits
from services.router.transport.name_lookup import NameLookup
from services.router.transport.openai_config import OpenAiConfig
from services.router.transport.openai_http import OpenAiTransport
from services.router.transport.port import Dispatch, Transport, WorkerFailure
from services.router.transport.triton_config import TritonConfig
from services.router.transport.triton_link import TritonLink
from services.router.transport.triton_request import Asked
from tests.contract.router.gateway import MODEL
from tests.fakes import scripts
from tests.fakes.scripts import Close, Hang, Reset, Step
from tests.fakes.worker import FakeWorker
from tests.harness.deaf_port import DeafPort
from tests.unit.router.triton_models import plan

DECOUPLED = "/v2/models/ensemble/generate_stream"
SINGLE = "/v2/models/ensemble/infer"
GOOD: list[Step] = [scripts.json_answer({"outputs": [{"name": "text_output", "datatype": "BYTES", "data": ["Hi"]}]})]


def link_to(url: str, **config: Any) -> TritonLink:
    fields = {"transport": "triton", "model_name": "ensemble", "protocol": "http", **config}
    return TritonLink(url, TritonConfig.model_validate(fields), max_answer_bytes=10_000)


async def asked_of(link: TritonLink, *, decoupled: bool) -> list[Any]:
    """What a Triton server answers, sign of life and all."""
    dispatch = Dispatch("r", 1, OPERATION_COMPLETION, MODEL, decoupled, [], 5)
    asked = Asked((), "", decoupled, 5, (), False, ())
    return [outputs async for outputs in link.respond(plan(decoupled=decoupled), asked, dispatch)]


def openai_at(url: str, **config: Any) -> Transport:
    fields = OpenAiConfig.model_validate({"transport": "openai", **config})
    return OpenAiTransport(url, fields, [MODEL], "openai-compatible", RouterLimits())


async def failure_of(transport: Transport) -> WorkerFailure:
    """How a request of a transport fails."""
    dispatch = Dispatch("r", 1, OPERATION_COMPLETION, MODEL, False, [("prompt", b'"Hi"')], 5)
    try:
        with pytest.raises(WorkerFailure) as failure:
            async for _ in transport.generate(dispatch):
                pass
    finally:
        await transport.close()
    return failure.value


def is_connect_deadline(failure: WorkerFailure) -> bool:
    """The failure says which deadline it was, and how long."""
    assert failure.reason == FAILURE_REASON_TIMEOUT
    assert failure.message == "the worker could not be connected to within 0.05 s (connect deadline)"
    return failure.deadline == "connect" and failure.try_another and failure.counts_against_worker


async def test_the_connect_deadline_of_an_openai_worker_has_its_own_words() -> None:
    with DeafPort() as deaf:
        assert is_connect_deadline(await failure_of(openai_at(f"http://127.0.0.1:{deaf.port}", connect_timeout_s=0.05)))


@pytest.mark.parametrize("decoupled", [True, False])
async def test_the_connect_deadline_of_a_triton_server_has_its_own_words(decoupled: bool) -> None:
    with DeafPort() as deaf:
        link = link_to(f"http://127.0.0.1:{deaf.port}", connect_timeout_s=0.05)
        with pytest.raises(WorkerFailure) as failure:
            await asked_of(link, decoupled=decoupled)
        await link.close()
    assert is_connect_deadline(failure.value)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Look-ups of names below `hangs.test` wait for the event."""
    system, go_on = socket.getaddrinfo, threading.Event()

    def look_up(host: Any, *rest: Any, **more: Any) -> Any:
        if str(host).endswith("hangs.test"):
            go_on.wait()
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return system(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    yield go_on
    go_on.set()


async def test_a_name_that_hangs_counts_to_the_connect_deadline(hanging: threading.Event) -> None:
    assert is_connect_deadline(await failure_of(openai_at("http://gpu.hangs.test:8000", connect_timeout_s=0.05)))
    link = link_to("http://gpu.hangs.test:8000", connect_timeout_s=0.05)
    with pytest.raises(WorkerFailure) as failure:
        async with asyncio.timeout(10):
            await asked_of(link, decoupled=True)
    await link.close()
    assert is_connect_deadline(failure.value)


async def test_names_that_hang_stop_no_other_worker(hanging: threading.Event, worker: FakeWorker) -> None:
    hung = [openai_at(f"http://gpu-{number}.hangs.test:8000", connect_timeout_s=60) for number in range(60)]
    waiting = [asyncio.ensure_future(failure_of(transport)) for transport in hung]
    worker.scripts[MODEL] = [scripts.json_answer({}, 500)]
    # By name, so that it is looked up as well.
    failure = await failure_of(openai_at(f"http://localhost:{worker.port}", connect_timeout_s=5))
    assert len(worker.requests) == 1
    assert failure.reason == FAILURE_REASON_UPSTREAM
    assert not any(each.done() for each in waiting)
    hanging.set()
    assert {each.message for each in await asyncio.gather(*waiting)} == {"the worker cannot be reached"}


async def test_look_ups_are_bounded(hanging: threading.Event) -> None:
    lookup = NameLookup(2)
    running = [
        asyncio.ensure_future(lookup.addresses(f"{number}.hangs.test", 1, socket.AF_INET)) for number in range(2)
    ]
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="too many"):
        await lookup.addresses("localhost", 1, socket.AF_INET)
    # Whoever gives up leaves its thread to end by itself, and that still counts.
    running[0].cancel()
    with pytest.raises(OSError, match="too many"):
        await lookup.addresses("localhost", 1, socket.AF_INET)
    hanging.set()
    with pytest.raises(socket.gaierror):
        await running[1]
    assert await lookup.addresses("127.0.0.1", 1, socket.AF_INET) == [(socket.AF_INET, socket.IPPROTO_TCP, "127.0.0.1")]


@pytest.fixture
async def link(worker: FakeWorker) -> AsyncIterator[TritonLink]:
    """A Triton server with one kept connection."""
    made = link_to(f"http://127.0.0.1:{worker.port}")
    worker.paths[SINGLE] = GOOD
    await asked_of(made, decoupled=False)
    worker.requests.clear()
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("steps", "stale"),
    [
        ([Close()], True),
        ([Reset()], True),
        ([b"HTTP/1.1 2", Close()], False),
        ([b"HTTP/1.1 200 OK\r\nContent-Ty", Reset()], False),
    ],
    ids=str,
)
async def test_a_kept_connection_to_triton_is_stale_only_without_a_byte_of_an_answer(
    link: TritonLink, worker: FakeWorker, steps: list[Step], stale: bool
) -> None:
    worker.paths[SINGLE] = steps
    with pytest.raises(WorkerFailure) as failure:
        await asked_of(link, decoupled=False)
    assert failure.value.stale_connection is stale
    assert len(worker.requests) == 1


@pytest.mark.parametrize("end", [Close(), Reset()], ids=str)
@pytest.mark.parametrize("path", [SINGLE, DECOUPLED])
async def test_an_answer_of_triton_that_breaks_off_is_the_workers_failure(
    link: TritonLink, worker: FakeWorker, path: str, end: Step
) -> None:
    kind = b"application/json" if path == SINGLE else b"text/event-stream"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\nContent-Length: 1000\r\n\r\n"
    worker.paths[path] = [head + b'{"outputs"', end]
    with pytest.raises(WorkerFailure) as failure:
        await asked_of(link, decoupled=path == DECOUPLED)
    assert failure.value.reason == FAILURE_REASON_UPSTREAM
    assert failure.value.try_another
    assert not failure.value.stale_connection


async def test_bytes_of_triton_that_complete_nothing_are_a_sign_of_life(link: TritonLink, worker: FakeWorker) -> None:
    piece = scripts.chunk(b'data: {"text_output":"Hi"')
    worker.paths[DECOUPLED] = [scripts.SSE_HEAD, scripts.chunk(b": ping\n\n"), piece, Hang()]
    dispatch = Dispatch("r", 1, OPERATION_COMPLETION, MODEL, True, [], 5)
    answer = link.respond(plan(decoupled=True), Asked((), "", True, 5, (), False, ()), dispatch)
    assert await anext(answer) is None
    await answer.aclose()
