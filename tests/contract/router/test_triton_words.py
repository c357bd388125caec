"""What a Triton server's own words may hold when they reach a caller, over real HTTP."""

from typing import Any

import pytest
from speedinfer.common.v1.operation_pb2 import OPERATION_COMPLETION
from speedinfer.router.v1.frame_pb2 import FAILURE_REASON_INVALID_RESPONSE, FAILURE_REASON_UPSTREAM

from services.router.transport.port import Dispatch, WorkerFailure
from services.router.transport.triton_config import TritonConfig
from services.router.transport.triton_link import TritonLink
from services.router.transport.triton_request import Asked
from tests.contract.router.gateway import MODEL
from tests.fakes import scripts
from tests.fakes.scripts import Script
from tests.fakes.worker import FakeWorker
from tests.unit.router.triton_models import plan


async def refused(worker: FakeWorker, script: Script, *, decoupled: bool) -> WorkerFailure:
    """How a request fails that the server answers with `script`."""
    config = TritonConfig.model_validate({
        "transport": "triton", "model_name": "ensemble", "protocol": "http", "headers": {"X-Auth": "Key triton-key-1"},
    })  # fmt: skip
    link = TritonLink(f"http://127.0.0.1:{worker.port}", config, max_answer_bytes=10_000)
    worker.paths = dict.fromkeys(["/v2/models/ensemble/infer", "/v2/models/ensemble/generate_stream"], script)
    dispatch = Dispatch("r", 1, OPERATION_COMPLETION, MODEL, decoupled, [], 5)
    asked = Asked((), "", decoupled, 5, (), False, ())
    try:
        with pytest.raises(WorkerFailure) as failure:
            async for _ in link.respond(plan(decoupled=decoupled), asked, dispatch):
                pass
    finally:
        await link.close()
    return failure.value


@pytest.mark.parametrize("decoupled", [True, False])
async def test_its_credentials_and_address_are_not_told(worker: FakeWorker, decoupled: bool) -> None:
    text = f"top_p must be positive (asked with triton-key-1 at 127.0.0.1:{worker.port})"
    failure = await refused(worker, [scripts.json_answer({"error": text}, 400)], decoupled=decoupled)
    assert failure.message == "top_p must be positive (asked with *** at ***)"
    assert "triton-key-1" not in failure.for_operators


@pytest.mark.parametrize("frame", [{"error": ""}, {"error": {}}, {"error": "at triton-key-1"}])
async def test_an_error_in_a_stream_is_one_however_little_it_says(worker: FakeWorker, frame: Any) -> None:
    failure = await refused(worker, scripts.stream(frame, done=False), decoupled=True)
    assert failure.reason == FAILURE_REASON_UPSTREAM
    assert "triton-key-1" not in failure.message + failure.for_operators


async def test_an_event_named_error_is_one(worker: FakeWorker) -> None:
    event = scripts.chunk(b'event: error\ndata: {"text_output":"x"}\n\n')
    failure = await refused(worker, scripts.stream(event, done=False), decoupled=True)
    assert failure.reason == FAILURE_REASON_UPSTREAM


@pytest.mark.parametrize("status", [201, 307])
async def test_a_status_that_is_no_answer_is_none(worker: FakeWorker, status: int) -> None:
    failure = await refused(worker, [scripts.answer(status, b"")], decoupled=False)
    assert failure.reason == FAILURE_REASON_INVALID_RESPONSE
    assert failure.message == "the worker's answer cannot be read"
