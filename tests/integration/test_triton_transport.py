"""The Triton transport against a real Triton with scripted models: what it finds, what it sends, what it makes of answers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest
from speedinfer.common.v1 import operation_pb2
from speedinfer.router.v1 import frame_pb2

from demo.triton_worker import TritonServer
from services.common.settings import RouterLimits
from services.common.tasks import TaskSet
from services.router.reading import Reading
from services.router.transport.port import Accepted, Activity, Chunk, Dispatch, Done, Event, WorkerFailure
from services.router.transport.triton import TritonTransport
from services.router.transport.triton_config import TritonConfig
from services.router.usage import Usage
from services.router.worker import Slot
from tests.harness.ports import free_port
from tests.harness.router_worker import worker_of
from tests.harness.until import until_async
from tests.triton_models.play import prompt as play

pytest_plugins = ["tests.integration.triton_server"]
pytestmark = pytest.mark.real

MODEL = "acme/model-1"
CHAT = operation_pb2.OPERATION_CHAT_COMPLETION
TEXT = operation_pb2.OPERATION_COMPLETION
NAMED = {"prompt_tokens_output_name": "prompt_tokens", "completion_tokens_output_name": "completion_tokens"}
# Enough to meet the end of a stream with a cancel, if there is one.
SURVIVED_ERRORS, SURVIVED_ODDITIES = 600, 60
Cancelled = Callable[[str], dict[str, int]]
# The models that answer as they should, each with what its registration must say.
GOOD: list[tuple[str, dict[str, Any]]] = [
    ("named_counts", NAMED),
    ("stock_ensemble", {}),
    ("stock_ensemble_unary", {}),
    ("slow_first", {}),
    ("endless", {}),
    ("cumulative_text", {"text_mode": "cumulative"}),
]


@asynccontextmanager
async def transport(
    server: TritonServer | int, model: str, *, endpoint: str = "", **config: Any
) -> AsyncIterator[TritonTransport]:
    port = server if isinstance(server, int) else server.http_port
    settings = TritonConfig.model_validate({"transport": "triton", "model_name": model, **config})
    made = TritonTransport(endpoint or f"http://127.0.0.1:{port}", settings, [MODEL], "triton", RouterLimits())
    try:
        yield made
    finally:
        await made.close()


def dispatch(
    prompt: str = "one two three", *, stream: bool = True, limit: int = 4, request_id: str = "r1", **body: Any
) -> Dispatch:
    members = {"prompt": prompt, **body}
    return Dispatch(
        request_id, 1, TEXT, MODEL, stream, [(name, orjson.dumps(value)) for name, value in members.items()], limit
    )


async def answer(made: TritonTransport, asked: Dispatch) -> list[Event]:
    return [event async for event in made.generate(asked)]


def chunks(events: list[Event]) -> list[Chunk]:
    return [event for event in events if isinstance(event, Chunk)]


def text(events: list[Event]) -> str:
    bodies = [orjson.loads(chunk.payload) for chunk in chunks(events) if chunk.payload]
    return "".join(choice["text"] for body in bodies for choice in body["choices"])


def reasons(events: list[Event]) -> dict[int, str]:
    return {index: reason for chunk in chunks(events) for index, reason in chunk.finished.items()}


@pytest.mark.parametrize(("model", "config"), GOOD)
@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("stream", [True, False])
async def test_every_good_model_answers_by_both_protocols(
    triton: TritonServer, model: str, config: dict[str, Any], protocol: str, stream: bool
) -> None:
    async with transport(triton, model, protocol=protocol, **config) as made:
        finding = await made.check()
        assert (finding.error, finding.detail) == ("", "")
        assert f"protocol: {protocol}" in finding.findings
        events = await answer(made, dispatch(stream=stream))
    assert events[0] == Accepted(())
    assert events[-1] == Done()
    assert text(events) == "tok0 tok1 tok2 tok3"
    assert reasons(events) == {0: "length"}
    assert [chunk.usage for chunk in chunks(events)][-1] == Usage(3, None, 4)
    assert any(chunk.content for chunk in chunks(events))
    if stream:
        frame = chunks(events)[-1].usage_frame
        assert frame is not None
        assert orjson.loads(frame)["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    else:
        (chunk,) = chunks(events)
        assert orjson.loads(chunk.payload or b"")["usage"]["completion_tokens"] == 4


async def test_a_decoupled_stream_comes_in_pieces_with_counts_on_the_way(triton: TritonServer) -> None:
    async with transport(triton, "stock_ensemble") as made:
        await made.check()
        events = await answer(made, dispatch("a b tokens=3", limit=9))
    with_text = [chunk for chunk in chunks(events) if chunk.content]
    assert [chunk.usage for chunk in with_text] == [Usage(3, None, 1), Usage(3, None, 2), Usage(3, None, 3)]
    assert reasons(events) == {0: "stop"}


async def test_a_chat_is_rendered_and_told_in_chat_frames(triton: TritonServer) -> None:
    source = "{% for m in messages %}{{ m.role }} says {{ m.content }} {% endfor %}"
    asked = Dispatch("r1", 1, CHAT, MODEL, True, [("messages", b'[{"role":"user","content":"hello there"}]')], 2)
    async with transport(triton, "stock_ensemble", chat_template=source) as made:
        finding = await made.check()
        events = await answer(made, asked)
    assert finding.warnings == ()
    deltas = [orjson.loads(chunk.payload)["choices"][0]["delta"] for chunk in chunks(events) if chunk.payload]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "tok0"}, {"content": " tok1"}, {}]
    # user says hello there
    assert chunks(events)[-1].usage == Usage(4, None, 2)


async def test_a_stop_sequence_that_the_model_ignores_is_enforced(triton: TritonServer) -> None:
    async with transport(triton, "stock_ensemble") as made:
        await made.check()
        events = await answer(made, dispatch(limit=12, stop=[" tok3"]))
        whole = await answer(made, dispatch(limit=12, stop=" tok3", stream=False))
    assert text(events) == text(whole) == "tok0 tok1 tok2"
    assert reasons(events) == reasons(whole) == {0: "stop"}
    # Read on for one response, since the model was told; never to its end.
    assert chunks(events)[-1].usage == Usage(3, None, 5)
    assert chunks(whole)[-1].usage == Usage(3, None, 12)


async def test_a_stop_cancels_a_model_that_cannot_be_told(triton: TritonServer, cancelled: Cancelled) -> None:
    async with transport(triton, "endless") as made:
        await made.check()
        events = await answer(made, dispatch(limit=1000, stop="2 tok3", request_id="stopped"))
        assert text(events) == "tok0 tok1 tok"
        assert chunks(events)[-1].usage == Usage(3, None, 4)
        sent = await until_async(lambda: cancelled("endless").get("stopped.1"), "the model sees the cancel")
    assert sent < 50


async def test_closing_a_stream_reaches_the_worker(triton: TritonServer, cancelled: Cancelled) -> None:
    async with transport(triton, "endless") as made:
        await made.check()
        async with aclosing(made.generate(dispatch(limit=100_000, request_id="closed"))) as events:
            seen = [await anext(events) for _ in range(4)]
        assert isinstance(seen[-1], Chunk)
        await until_async(lambda: cancelled("endless").get("closed.1"), "the model sees the cancel")


async def test_dropping_a_whole_answer_reaches_the_worker(triton: TritonServer, cancelled: Cancelled) -> None:
    async with transport(triton, "named_counts", **NAMED) as made:
        await made.check()
        # This model streams whether asked or not, so it is seen to be at work before it is dropped.
        asked = dispatch("one tokens=100000 interval=20", stream=False, request_id="dropped", limit=100_000)
        events = made.generate(asked)
        assert [await anext(events) for _ in range(2)] == [Accepted(()), Activity()]
        waiting = asyncio.ensure_future(anext(events))
        await until_async(waiting.done, "a response")
        task = asyncio.ensure_future(_drain(events))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await events.aclose()
        await until_async(lambda: cancelled("named_counts").get("dropped.1"), "the model sees the cancel")


async def _drain(events: AsyncIterator[Event]) -> None:
    async for _ in events:
        pass


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_an_error_in_the_middle_of_a_stream(triton: TritonServer, protocol: str) -> None:
    async with transport(triton, "error_midstream", protocol=protocol) as made:
        assert (await made.check()).error == ""
        events = made.generate(dispatch())
        # Accepted, the first text, the second text.
        seen = [await anext(events) for _ in range(3)]
        with pytest.raises(WorkerFailure) as caught:
            await anext(events)
    assert text(seen) == "tok0 tok1"
    assert reasons(seen) == {}
    assert caught.value.reason == frame_pb2.FAILURE_REASON_UPSTREAM
    assert caught.value.message == "the worker failed"


async def test_the_server_survives_many_errors_and_cancels_at_once(triton: TritonServer) -> None:
    async def drop(made: TritonTransport, number: int) -> None:
        async with aclosing(made.generate(dispatch(limit=100_000, request_id=f"many{number}"))) as events:
            assert isinstance(await anext(events), Accepted)

    async with transport(triton, "error_midstream") as failing, transport(triton, "endless") as endless:
        await failing.check()
        await endless.check()
        failures = await asyncio.gather(
            *(answer(failing, dispatch()) for _ in range(30)),
            *(drop(endless, number) for number in range(30)),
            return_exceptions=True,
        )
        assert [type(failure) for failure in failures] == [WorkerFailure] * 30 + [type(None)] * 30
        assert text(await answer(endless, dispatch(limit=2))) == "tok0 tok1"


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize(
    ("first", "message"),
    [
        pytest.param({"error": ["INTERNAL", "KV cache is too small for this batch"]}, "the worker failed", id="error"),
        pytest.param({"error": ["INTERNAL", ""]}, "the worker failed", id="wordless"),
        pytest.param({"text": "x", "out": [1] * 70_000}, "the worker's answer cannot be read", id="unreadable"),
        pytest.param({"text": "x", "more": ["y"]}, "the worker's answer cannot be read", id="two-texts"),
    ],
)
async def test_the_server_survives_streams_that_fail_at_once(
    triton: TritonServer, protocol: str, first: dict[str, Any], message: str
) -> None:
    # Where each is cancelled at once, a cancel that meets the end of one kills the server.
    each = SURVIVED_ERRORS if "error" in first else SURVIVED_ODDITIES
    prompt, at_once = play(first), asyncio.Semaphore(24)

    async def fail(made: TritonTransport, number: int) -> str:
        async with at_once:
            with pytest.raises(WorkerFailure) as caught:
                await answer(made, dispatch(prompt, request_id=f"failing{number}", stream=bool(number % 2)))
            return caught.value.message

    async with transport(triton, "stock_ensemble", protocol=protocol) as made:
        assert (await made.check()).error == ""
        failures = await asyncio.gather(*(fail(made, number) for number in range(each)))
        assert set(failures) == {message}
        assert text(await answer(made, dispatch(limit=2))) == "tok0 tok1"


async def test_the_server_survives_clients_that_leave_at_the_end(triton: TritonServer) -> None:
    prompt, at_once, tasks = play({"text": "a"}, {"text": "b"}), asyncio.Semaphore(24), TaskSet()

    async def leave(made: TritonTransport, slot: Slot, number: int) -> None:
        async with at_once:
            asked = dispatch(prompt, request_id=f"leaving{number}")
            reading = Reading(made.generate(asked), slot, tasks, end_wait_s=made.end_wait_s)
            seen: list[Event] = []
            while text(seen) != "ab":
                assert await reading.wait(asyncio.get_running_loop().time() + 30)
                seen += reading.take()
            reading.leave()

    async with transport(triton, "stock_ensemble") as made:
        await made.check()
        worker = worker_of(made)
        await asyncio.gather(*(leave(made, worker.take(0.0), number) for number in range(SURVIVED_ERRORS)))
        await until_async(lambda: worker.in_flight == 0, "every stream has ended")
        assert text(await answer(made, dispatch(limit=2))) == "tok0 tok1"


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_an_error_before_anything_is_no_acceptance(triton: TritonServer, protocol: str) -> None:
    async with transport(triton, "error_midstream", protocol=protocol) as made:
        await made.check()
        events = made.generate(dispatch(stream=False))
        with pytest.raises(WorkerFailure, match="the worker failed"):
            await anext(events)


async def test_counts_declared_and_never_sent(triton: TritonServer) -> None:
    async with transport(triton, "counts_absent") as made:
        finding = await made.check()
        assert finding.error == "misconfigured"
        assert finding.detail == (
            "model 'counts_absent' reports no usage: its answer carried no usable 'num_input_tokens' and 'num_output_tokens'"
        )
    async with transport(triton, "counts_absent", check="metadata") as made:
        assert (await made.check()).error == ""
        events = await answer(made, dispatch())
    assert text(events) == "tok0 tok1 tok2 tok3"
    assert all(chunk.usage is None and chunk.usage_frame is None for chunk in chunks(events))


async def test_two_streams_at_once_do_not_mix(triton: TritonServer) -> None:
    async with transport(triton, "endless") as made:
        await made.check()
        lengths = (3, 11, 7, 5)
        answers = await asyncio.gather(*(answer(made, dispatch(limit=n, request_id=f"r{n}")) for n in lengths))
    for length, events in zip(lengths, answers, strict=True):
        assert text(events) == "".join(f"{' ' if i else ''}tok{i}" for i in range(length))
        assert chunks(events)[-1].usage == Usage(3, None, length)


@pytest.mark.parametrize(
    ("model", "config", "said"),
    [
        (
            "stock_ensemble",
            NAMED,
            "output 'prompt_tokens' is not declared by model 'stock_ensemble'; it declares text_output, cum_log_probs",
        ),
        (
            "named_counts",
            {**NAMED, "input_name": "text"},
            "input 'text' is not declared by model 'named_counts'; it declares",
        ),
        (
            "named_counts",
            {**NAMED, "temperature_input_name": "heat"},
            "input 'heat' is not declared by model 'named_counts'; it declares text_input, max_tokens",
        ),
        ("no_counts", {}, "model 'no_counts' declares no token counts, so it cannot be billed as it is"),
        ("llmapi_names", {}, "the overlay in deploy/triton/ adds 'num_input_tokens' and 'num_output_tokens'"),
        ("ensemble", {}, "the server has no model 'ensemble'; it has counts_absent, cumulative_text, demanding,"),
        ("stock_ensemble", {"model_version": "9"}, "the server has no model 'stock_ensemble' version 9"),
        (
            "stock_ensemble",
            {"chat_template": "/no/such/file"},
            "'chat_template' cannot be used: the file /no/such/file",
        ),
        ("stock_ensemble", {"chat_template": "{{ 1 / 0 }}"}, "the chat template failed with ZeroDivisionError"),
        ("stock_ensemble", {"chat_template": "{% for %}"}, "'chat_template' cannot be used: line 1"),
    ],
)
async def test_what_is_wrong_is_said_by_name(
    triton: TritonServer, model: str, config: dict[str, Any], said: str
) -> None:
    async with transport(triton, model, **config) as made:
        finding = await made.check()
        assert finding.error == "misconfigured"
        assert said in finding.detail
        with pytest.raises(WorkerFailure, match="not ready"):
            await answer(made, dispatch())


async def test_an_explicit_version_is_asked_for(triton: TritonServer) -> None:
    async with transport(triton, "stock_ensemble", model_version=1) as made:
        assert (await made.check()).error == ""
        assert text(await answer(made, dispatch(limit=1))) == "tok0"


async def test_auto_falls_back_to_http_and_says_what_that_costs(triton: TritonServer) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    async with transport(triton, "stock_ensemble", grpc_endpoint=nobody) as made:
        finding = await made.check()
        assert finding.error == ""
        assert "cannot be cancelled" in finding.warnings[0]
        assert text(await answer(made, dispatch())) == "tok0 tok1 tok2 tok3"
    async with transport(
        triton, "stock_ensemble", grpc_endpoint=nobody, protocol="grpc", connect_timeout_s=0.5
    ) as made:
        finding = await made.check()
        assert (finding.error, nobody in finding.detail) == ("misconfigured", True)


async def test_the_probe_sees_the_model(triton: TritonServer) -> None:
    async with transport(triton, "stock_ensemble") as made:
        assert (await made.probe()).error == ""
    async with transport(triton, "ensemble") as made:
        finding = await made.probe()
        assert (finding.error, finding.detail) == ("not_ready", "model 'ensemble' is not ready")


async def test_a_model_that_changed_since_the_check_is_the_operators_fault(triton: TritonServer) -> None:
    async with transport(triton, "stock_ensemble", check="metadata") as made:
        await made.check()
        assert made._known is not None
        plans = made._known.plans
        plans["stock_ensemble"] = replace(plans["stock_ensemble"], model="named_counts")
        with pytest.raises(WorkerFailure) as caught:
            await answer(made, dispatch())
    assert caught.value.reason == frame_pb2.FAILURE_REASON_UPSTREAM
    assert caught.value.message == "the worker is not set up for this request"


async def test_nobody_there() -> None:
    async with transport(free_port(), "stock_ensemble") as made:
        assert (await made.check()).error == "connect"
        assert (await made.probe()).error == "connect"


async def test_stopped_and_started_again(own_triton: Callable[..., TritonServer]) -> None:
    server = own_triton("endless", "stock_ensemble")
    server.start()
    await asyncio.to_thread(server.wait_ready)
    async with transport(server, "endless") as made, transport(server, "stock_ensemble", protocol="http") as other:
        assert [(await made.check()).error, (await other.check()).error] == ["", ""]
        events = made.generate(dispatch(limit=100_000))
        seen = [await anext(events) for _ in range(3)]
        assert isinstance(seen[-1], Chunk)
        stopping = asyncio.create_task(asyncio.to_thread(server.stop))
        with pytest.raises(WorkerFailure) as caught:
            await _drain(events)
        assert caught.value.reason == frame_pb2.FAILURE_REASON_UPSTREAM
        await stopping
        assert [(await made.probe()).error, (await other.probe()).error] == ["connect", "connect"]
        for each in (made, other):
            with pytest.raises(WorkerFailure) as refused:
                await answer(each, dispatch())
            assert refused.value.connection_lost
            assert refused.value.try_another
        server.start()
        await asyncio.to_thread(server.wait_ready)
        for each in (made, other):
            assert (await each.check()).error == ""
            assert (await each.probe()).error == ""
            assert text(await answer(each, dispatch())) == "tok0 tok1 tok2 tok3"
