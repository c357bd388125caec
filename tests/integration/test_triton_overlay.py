"""The overlay in deploy/triton/ on a real Triton, over a stand-in for the LLM API, as the Triton transport sees it."""

import asyncio
import json
import shutil
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from speedinfer.common.v1 import operation_pb2
from speedinfer.router.v1 import frame_pb2
from tritonclient.grpc.aio import InferenceServerClient, InferInput

from demo.run_install import ROOT, VENV
from demo.triton_worker import TritonServer, unavailable_reason
from services.common.settings import RouterLimits
from services.router.transport.port import Accepted, Chunk, Dispatch, Done, Event, WorkerFailure
from services.router.transport.triton import TritonTransport
from services.router.transport.triton_config import TritonConfig
from services.router.transport.triton_model import OVERLAY
from services.router.usage import Usage
from tests.fakes.llm_api.tensorrt_llm.llmapi import answer_text
from tests.harness.ports import free_port
from tests.harness.until import until_async

MODEL_FOLDER = ROOT / "deploy" / "triton" / "tensorrt_llm"
STAND_IN = ROOT / "tests" / "fakes" / "llm_api"
pytest_plugins = ["tests.integration.triton_server"]
pytestmark = pytest.mark.real

MODEL = "acme/model-1"
TEXT = operation_pb2.OPERATION_COMPLETION
CONTEXT_TOKENS = 1_000_000
MAX_REQUESTS = 48


@dataclass
class Overlay:
    """The running server and what its engine has told."""

    server: TritonServer
    folder: Path

    def events(self, kind: str) -> list[dict[str, Any]]:
        told = [json.loads(line) for line in (self.folder / "events").read_text().splitlines()]
        return [event for event in told if event["event"] == kind]

    @property
    def log(self) -> str:
        return self.server.log.read_text(errors="replace")


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Overlay]:
    """The model as an operator installs it, the stand-in beside it."""
    if reason := unavailable_reason(VENV):
        pytest.skip(f"Triton: {reason}")
    folder = tmp_path_factory.mktemp("overlay")
    installed = folder / "models" / "tensorrt_llm"
    shutil.copytree(MODEL_FOLDER, installed, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(STAND_IN, installed / "1", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    # With what NVIDIA's own file says about Triton.
    settings = {
        "model": str(folder),
        "backend": "pytorch",
        "tensor_parallel_size": 1,
        "max_seq_len": CONTEXT_TOKENS,
        "triton_config": {"max_batch_size": 0, "decoupled": False, "cancellation_check_period_ms": 20},
    }
    (installed / "1" / "model.yaml").write_text(json.dumps(settings))
    config = installed / "config.pbtxt"
    config.write_text(config.read_text().replace('"1024"', f'"{MAX_REQUESTS}"'))
    port = free_port(neighbours=2)
    with TritonServer(
        model_repository=folder / "models",
        work_dir=folder,
        venv=VENV,
        http_port=port,
        grpc_port=port + 1,
        metrics_port=port + 2,
    ) as server:
        yield Overlay(server, folder)


@asynccontextmanager
async def transport(server: TritonServer, model: str = "tensorrt_llm", **config: Any) -> AsyncIterator[TritonTransport]:
    settings = TritonConfig.model_validate({"transport": "triton", "model_name": model, **config})
    made = TritonTransport(f"http://127.0.0.1:{server.http_port}", settings, [MODEL], "tensorrt-llm", RouterLimits())
    try:
        yield made
    finally:
        await made.close()


def dispatch(
    prompt: str = "one two three", *, stream: bool = True, limit: int | None = 20, request_id: str = "r1", **body: Any
) -> Dispatch:
    members = [(name, orjson.dumps(value)) for name, value in {"prompt": prompt, **body}.items()]
    return Dispatch(request_id, 1, TEXT, MODEL, stream, members, limit)


async def answer(made: TritonTransport, asked: Dispatch) -> list[Event]:
    return [event async for event in made.generate(asked)]


def chunks(events: list[Event]) -> list[Chunk]:
    return [event for event in events if isinstance(event, Chunk)]


def deltas(events: list[Event]) -> list[str]:
    bodies = [orjson.loads(chunk.payload) for chunk in chunks(events) if chunk.payload]
    return [choice["text"] for body in bodies for choice in body["choices"]]


def reasons(events: list[Event]) -> dict[int, str]:
    return {index: reason for chunk in chunks(events) for index, reason in chunk.finished.items()}


async def responses(overlay: Overlay, request_id: str = "raw", **inputs: Any) -> list[dict[str, Any] | str]:
    """What Triton itself sends for the inputs (numpy arrays): outputs by name, or an error's text."""
    types = {"O": "BYTES", "b": "BOOL", "i": "INT32", "f": "FP32", "u": "UINT64"}
    tensors = []
    for name, array in inputs.items():
        tensors.append(InferInput(name, list(array.shape), types[array.dtype.kind]))
        tensors[-1].set_data_from_numpy(array)

    async def asked() -> AsyncIterator[dict[str, Any]]:
        yield {"model_name": "tensorrt_llm", "inputs": tensors, "request_id": request_id}

    got: list[dict[str, Any] | str] = []
    async with InferenceServerClient(f"127.0.0.1:{overlay.server.grpc_port}") as client:
        async for result, error in client.stream_infer(asked()):
            if error is not None:
                got.append(error.message())
            elif names := [output.name for output in result.get_response().outputs]:
                got.append({name: result.as_numpy(name).tolist() for name in names})
    return got


def text_array(*values: str) -> Any:
    return np.array([value.encode() for value in values], dtype=np.object_)


YES = np.array([True])


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_the_registration_check_finds_counts(overlay: Overlay, protocol: str) -> None:
    async with transport(overlay.server, protocol=protocol) as made:
        finding = await made.check()
        assert (finding.error, finding.detail) == ("", "")
        assert (await made.probe()).error == ""
    (described,) = [line for line in finding.findings if line.startswith("model: ")]
    assert described.startswith("model: 'tensorrt_llm', decoupled, text cumulative, inputs text_input, ")
    assert "sampling_param_max_tokens, streaming, sampling_param_exclude_input_from_output" in described
    assert any(line.startswith("usage: prompt_tokens=") for line in finding.findings)
    assert overlay.events("loaded") == [{"event": "loaded", "backend": "pytorch", "tensor_parallel_size": 1}]


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_a_stream_comes_in_whole_characters_with_the_engines_own_counts(overlay: Overlay, protocol: str) -> None:
    async with transport(overlay.server, protocol=protocol) as made:
        await made.check()
        events = await answer(made, dispatch("say it tokens=11"))
    assert (events[0], events[-1]) == (Accepted(()), Done())
    # 33 bytes of the text.
    assert "".join(deltas(events)) == answer_text(11) == "Grüße aus München 🙂 und zur"
    assert not any("\ufffd" in delta for delta in deltas(events))
    assert len([delta for delta in deltas(events) if delta]) > 5
    assert reasons(events) == {0: "stop"}
    finished = overlay.events("finished")[-1]
    asked = overlay.events("asked")[-1]
    assert (asked["prompt_tokens"], finished["tokens"], asked["streaming"]) == (4, 11, True)
    assert chunks(events)[-1].usage == Usage(4, None, 11)
    counted = [chunk.usage for chunk in chunks(events) if chunk.content]
    assert counted == sorted(counted, key=lambda usage: usage.completion if usage and usage.completion else 0)
    assert counted[0] == Usage(4, None, 1)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_a_whole_answer_has_the_totals_and_no_echo(overlay: Overlay, protocol: str) -> None:
    async with transport(overlay.server, protocol=protocol) as made:
        await made.check()
        events = await answer(made, dispatch(stream=False, limit=5))
    (chunk,) = chunks(events)
    body = orjson.loads(chunk.payload or b"")
    assert body["choices"][0]["text"] == answer_text(5)
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"] == {"prompt_tokens": 4, "completion_tokens": 5, "total_tokens": 9}
    assert overlay.events("asked")[-1]["streaming"] is False


async def test_several_tokens_a_step_are_all_counted(overlay: Overlay) -> None:
    async with transport(overlay.server) as made:
        await made.check()
        events = await answer(made, dispatch("draft step=4 tokens=10"))
    assert "".join(deltas(events)) == answer_text(10)
    assert chunks(events)[-1].usage == Usage(4, None, 10)


async def test_raw_responses_have_counts_each_and_a_finish_reason_at_the_end(overlay: Overlay) -> None:
    got = await responses(
        overlay,
        text_input=text_array("a b step=2"),
        streaming=YES,
        sampling_param_max_tokens=np.array([5], dtype=np.int32),
        return_finish_reason=YES,
        return_cumulative_logprob=YES,
    )
    assert got == [
        {
            "text_output": [answer_text(tokens).encode()],
            "num_input_tokens": [4],
            "num_output_tokens": [fresh],
            "cumulative_logprob": [-0.5 * tokens],
            **last,
        }
        for tokens, fresh, last in ((2, 2, {}), (4, 2, {}), (5, 1, {"finish_reason": [b"length"]}))
    ]


async def test_a_whole_answer_begins_with_the_prompt_unless_told_not_to(overlay: Overlay) -> None:
    limit = np.array([3], dtype=np.int32)
    (echoed,) = await responses(overlay, text_input=text_array("a b "), sampling_param_max_tokens=limit)
    (bare,) = await responses(
        overlay,
        text_input=text_array("a b "),
        sampling_param_max_tokens=limit,
        sampling_param_exclude_input_from_output=YES,
    )
    counts = {"num_input_tokens": [3], "num_output_tokens": [3]}
    # The count is of what was generated, either way.
    assert echoed == {"text_output": [f"a b {answer_text(3)}".encode()], **counts}
    assert bare == {"text_output": [answer_text(3).encode()], **counts}


async def test_parameters_reach_the_engine(overlay: Overlay) -> None:
    async with transport(overlay.server) as made:
        await made.check()
        events = await answer(
            made, dispatch(limit=7, temperature=0, top_p=0.5, seed=2**63, stop=["never"], frequency_penalty=0.25)
        )
    assert events[0] == Accepted(())
    assert overlay.events("asked")[-1]["sampling"] == {
        "max_tokens": 7,
        "stop": ["never"],
        "include_stop_str_in_output": True,
        # Temperature 0.
        "top_k": 1,
        "top_p": 0.5,
        "frequency_penalty": 0.25,
        "seed": 2**63,
        "n": 1,
        "exclude_input_from_output": True,
        "add_special_tokens": True,
    }


@pytest.mark.parametrize("stream", [True, False])
async def test_a_stop_word_is_cut_and_its_tokens_are_counted(overlay: Overlay, stream: bool) -> None:
    async with transport(overlay.server) as made:
        await made.check()
        # Within one token, and over several.
        for stop in ("e", " aus"):
            events = await answer(made, dispatch(stop=stop, stream=stream))
            assert "".join(deltas(events)) == "Grüße".removesuffix(stop)
            assert reasons(events) == {0: "stop"}
            assert chunks(events)[-1].usage == Usage(4, None, overlay.events("finished")[-1]["tokens"])


async def test_raw_a_whole_answer_ends_before_the_stop_word(overlay: Overlay) -> None:
    asked = {
        "text_input": text_array("a"),
        "sampling_param_stop": text_array(" aus", "other"),
        "return_stop_reason": YES,
    }
    (whole,) = await responses(overlay, **asked, sampling_param_exclude_input_from_output=YES)
    *_, last = await responses(overlay, **asked, streaming=YES)
    expected = {"num_input_tokens": [2], "stop_reason": [b" aus"]}
    assert whole == {"text_output": ["Grüße".encode()], "num_output_tokens": [4], **expected}
    assert last == {"text_output": [answer_text(4).encode()], "num_output_tokens": [1], **expected}


@pytest.mark.parametrize("stream", [True, False])
async def test_a_cancel_aborts_the_engine(overlay: Overlay, stream: bool) -> None:
    prompt = f"go on stream={stream} interval=5 tokens=1000000"
    before = len(overlay.events("aborted"))
    async with transport(overlay.server) as made:
        await made.check()
        if stream:
            async with aclosing(made.generate(dispatch(prompt, limit=900_000))) as events:
                seen = [await anext(events) for _ in range(4)]
            assert isinstance(seen[-1], Chunk)
        else:
            known = len(overlay.events("asked"))
            task = asyncio.create_task(answer(made, dispatch(prompt, limit=900_000, stream=False)))
            await until_async(lambda: len(overlay.events("asked")) > known, "the engine is asked")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await until_async(lambda: len(overlay.events("aborted")) > before, "the engine is told")
        assert overlay.events("aborted")[-1]["tokens"] < 100_000
        # The model goes on.
        assert "".join(deltas(await answer(made, dispatch(limit=3)))) == answer_text(3)


async def test_stop_true_ends_the_requests_of_the_same_id(overlay: Overlay) -> None:
    known, before = len(overlay.events("asked")), len(overlay.events("aborted"))
    prompt = text_array("long interval=5 tokens=1000000")
    limit = np.array([900_000], dtype=np.int32)
    running = asyncio.create_task(
        responses(overlay, "mine", text_input=prompt, streaming=YES, sampling_param_max_tokens=limit)
    )
    await until_async(lambda: len(overlay.events("asked")) > known, "the engine is asked")
    assert await responses(overlay, "mine", text_input=text_array(""), stop=YES) == []
    got = await running
    assert "the request was cancelled" in str(got[-1])
    assert len(overlay.events("aborted")) == before + 1


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("fault", "said"), [("fail", "the fail that was asked for"), ("crash", "generation failed")])
async def test_an_engine_that_fails_ends_the_answer_with_one_line(
    overlay: Overlay, fault: str, said: str, stream: bool
) -> None:
    got = await responses(overlay, text_input=text_array(f"a {fault}=3"), streaming=np.array([stream]))
    assert [type(each) for each in got] == [dict] * (2 if stream else 0) + [str]
    # Triton writes the request's id before it; no line of the traceback follows.
    assert str(got[-1]).removeprefix("[request id: raw] ") == said
    async with transport(overlay.server) as made:
        await made.check()
        with pytest.raises(WorkerFailure) as caught:
            await answer(made, dispatch(f"a {fault}=3", stream=stream))
    assert caught.value.reason == frame_pb2.FAILURE_REASON_UPSTREAM
    assert caught.value.message == "the worker failed"
    assert f"generation failed: the {fault} that was asked for" in overlay.log


async def test_what_the_engine_refuses_is_the_clients_fault(overlay: Overlay) -> None:
    async with transport(overlay.server) as made:
        await made.check()
        with pytest.raises(WorkerFailure) as caught:
            await answer(made, dispatch(limit=CONTEXT_TOKENS))
    assert caught.value.reason == frame_pb2.FAILURE_REASON_REJECTED
    assert caught.value.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"text_input": text_array("a", "b")}, "text_input must have one element, one prompt a request; got 2"),
        ({"text_input": np.array([b"\xff"], dtype=np.object_)}, "text_input must be UTF-8"),
        ({"sampling_param_max_tokens": np.array([0], dtype=np.int32)}, "sampling_param_max_tokens must be at least 1"),
        ({"sampling_param_best_of": np.array([2], dtype=np.int32)}, "sampling_param_best_of must be 1"),
        ({"sampling_param_top_p": np.array([7], dtype=np.float32)}, "require 0 <= top_p <= 1, got top_p=7.0"),
    ],
)
async def test_a_request_that_cannot_be_is_refused_by_name(overlay: Overlay, inputs: dict[str, Any], said: str) -> None:
    (refusal,) = await responses(overlay, **{"text_input": text_array("a"), **inputs})
    assert said in str(refusal)


async def test_a_refusal_has_the_code_of_an_invalid_argument(overlay: Overlay) -> None:
    body = {"text_input": "a", "sampling_param_max_tokens": 0}
    request = urllib.request.Request(
        f"http://127.0.0.1:{overlay.server.http_port}/v2/models/tensorrt_llm/generate", data=json.dumps(body).encode()
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        await asyncio.to_thread(urllib.request.urlopen, request, timeout=10)
    with caught.value as refusal:
        assert refusal.code == 400
        assert "must be at least 1" in json.load(refusal)["error"]


async def test_many_at_once_keep_their_own_counts(overlay: Overlay) -> None:
    async with transport(overlay.server) as made:
        await made.check()
        lengths = [3 + number % 17 for number in range(40)]
        answers = await asyncio.gather(
            *(answer(made, dispatch(f"n interval=2 tokens={n}", request_id=f"r{i}")) for i, n in enumerate(lengths))
        )
    for length, events in zip(lengths, answers, strict=True):
        assert "".join(deltas(events)) == answer_text(length)
        assert chunks(events)[-1].usage == Usage(4, None, length)


async def test_one_request_too_many_is_refused_as_overload(overlay: Overlay) -> None:
    async with transport(overlay.server) as made, AsyncExitStack() as running:
        await made.check()
        before = len(overlay.events("aborted"))
        for number in range(MAX_REQUESTS):
            asked = dispatch("n interval=50 tokens=100000", limit=100_000, request_id=f"full{number}")
            events = await running.enter_async_context(aclosing(made.generate(asked)))
            assert isinstance(await anext(events), Accepted)
        with pytest.raises(WorkerFailure) as caught:
            await answer(made, dispatch())
        assert caught.value.reason == frame_pb2.FAILURE_REASON_OVERLOADED
        await running.aclose()
        await until_async(lambda: len(overlay.events("aborted")) == before + MAX_REQUESTS, "all are aborted")
        assert "".join(deltas(await answer(made, dispatch(limit=2)))) == answer_text(2)


async def test_prompts_and_texts_are_not_in_the_log(overlay: Overlay) -> None:
    async with transport(overlay.server) as made:
        await made.check()
        await answer(made, dispatch("the-secret-word tokens=12"))
        with pytest.raises(WorkerFailure):
            await answer(made, dispatch("the-secret-word crash=2"))
    assert "the-secret-word" not in overlay.log
    assert "Grüße" not in overlay.log


async def test_the_bare_stock_model_is_misconfigured_and_the_message_names_this_overlay(triton: TritonServer) -> None:
    async with transport(triton, "llmapi_names") as made:
        finding = await made.check()
    assert finding.error == "misconfigured"
    assert f"the overlay in {OVERLAY} adds 'num_input_tokens' and 'num_output_tokens'" in finding.detail
    assert (ROOT / OVERLAY / "tensorrt_llm" / "config.pbtxt").is_file()
    assert (ROOT / OVERLAY / "tensorrt_llm" / "1" / "model.py").is_file()
