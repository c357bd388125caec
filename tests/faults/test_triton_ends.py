"""Where a Triton answer ends (T3): at the server's own word, and nothing that was cut before it is charged for.

Triton itself flags every end, so what spoils it stands between: a gRPC relay before the real server, and over HTTP, which has
no flag, a scripted server whose bodies end in one way or another.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from demo.triton_worker import TritonServer
from tests.fakes import scripts, triton_relay
from tests.fakes.scripts import Close, Step
from tests.fakes.triton_relay import Ending, TritonRelay
from tests.fakes.worker import FakeWorker
from tests.harness.fake_worker import ThreadedWorker
from tests.harness.stage import Customer, Stage
from tests.integration.triton_scene import TritonScene, counts_of, error_of, reasons_of, text_of
from tests.triton_models.play import prompt as play
from tests.unit.router.triton_models import REASONED_INPUTS, REASONED_OUTPUTS, described

pytest_plugins = ["tests.integration.triton_server"]
pytestmark = pytest.mark.real

LOST = (triton_relay.lost, triton_relay.lost_behind_a_proxy, triton_relay.reset)
UNSAID = (triton_relay.unflagged, triton_relay.without_flags)
STREAM_AND_WHOLE = (False, True)
MODEL = "scripted"
UNTIL_CLOSE = scripts.SSE_HEAD_UNTIL_CLOSE


@pytest.fixture(scope="module")
def scene(stage: Stage, triton: TritonServer) -> TritonScene:
    return TritonScene(stage.product, triton)


@pytest.fixture(scope="module")
def relay(triton: TritonServer) -> Iterator[TritonRelay]:
    with TritonRelay(triton.grpc_port) as running:
        yield running


@pytest.fixture(scope="module")
def scripted() -> Iterator[FakeWorker]:
    """The HTTP front of a server with one model; `events` says what it answers."""
    metadata, config = described(REASONED_INPUTS, REASONED_OUTPUTS)
    worker = FakeWorker()
    worker.paths = {
        "/v2/health/ready": [scripts.answer(200, b"")],
        f"/v2/models/{MODEL}": [scripts.json_answer(metadata)],
        f"/v2/models/{MODEL}/config": [scripts.json_answer(config)],
        f"/v2/models/{MODEL}/ready": [scripts.answer(200, b"")],
    }
    with ThreadedWorker(worker):
        yield worker


def through(scene: TritonScene, relay: TritonRelay, model: str, ending: Ending) -> None:
    relay.ending = ending
    scene.register(model, protocol="grpc", check="metadata", grpc_endpoint=f"127.0.0.1:{relay.port}")


def answers(scene: TritonScene, scripted: FakeWorker, steps: list[Step]) -> None:
    scripted.paths[f"/v2/models/{MODEL}/generate_stream"] = steps
    scene.register(MODEL, port=scripted.port, protocol="http", check="metadata")


def said(text: Any, **more: Any) -> dict[str, Any]:
    return {"model_name": MODEL, "text_output": text, "num_input_tokens": 3, "num_output_tokens": 1, **more}


def plain(frame: dict[str, Any]) -> bytes:
    """An event of a body that is not in chunks."""
    _, event, _ = scripts.event(frame).split(b"\r\n")
    return event


async def assert_cut(scene: TritonScene, customer: Customer, prompt: str, text: str) -> None:
    """A stream is an error event after its text, a whole answer an error, and neither is paid for."""
    seen = await scene.ask(customer, prompt)
    assert (seen.status, text_of(seen), reasons_of(seen), seen.done) == (200, text, [], False)
    assert error_of(seen)["code"] == "upstream_error"
    whole = await scene.ask(customer, prompt, whole=True)
    assert (whole.status, error_of(whole)["code"]) == (502, "upstream_error")
    scene.assert_unpaid(customer)


@pytest.mark.parametrize("ending", [*UNSAID, *LOST], ids=lambda ending: str(ending.__name__))
async def test_t3_a_grpc_stream_that_ends_before_its_flag_is_cut_and_costs_nothing(
    scene: TritonScene, customer: Customer, relay: TritonRelay, ending: Ending
) -> None:
    through(scene, relay, "stock_ensemble", ending)
    # All that the limit allows was counted; text that was held back may be lost all the same.
    await assert_cut(scene, customer, play({"text": "Hel", "out": 4}, {"text": "lo", "out": 4}), "Hello")
    nothing = await scene.ask(customer, '{"play":[]}')
    assert (nothing.status, error_of(nothing)["code"]) == (502, "upstream_error")
    scene.assert_unpaid(customer)


@pytest.mark.parametrize("ending", [UNSAID[0], *LOST], ids=lambda ending: str(ending.__name__))
async def test_t3_what_the_model_itself_has_ended_is_paid_for_though_the_flag_is_lost(
    scene: TritonScene, customer: Customer, relay: TritonRelay, ending: Ending
) -> None:
    through(scene, relay, "llmapi_counted", ending)
    for whole in STREAM_AND_WHOLE:
        seen = await scene.ask(customer, play({"text": "Hello", "out": 2, "finish": "stop"}), whole=whole)
        assert (seen.status, text_of(seen), reasons_of(seen)) == (200, "Hello", ["stop"]), seen.payloads
        # A stop sequence that was found here ends the text as well.
        seen = await scene.ask(customer, play({"text": "HelloEND", "out": 2}), whole=whole, stop="END")
        assert (seen.status, text_of(seen), reasons_of(seen)) == (200, "Hello", ["stop"]), seen.payloads
    scene.assert_paid(customer, 3, 2, times=4)
    # The same without the model's word, or with its word and without counts.
    for responses in ({"text": "Hello"}, {"text": "Hello", "in": None, "out": None, "finish": "stop"}):
        seen = await scene.ask(customer, play(responses))
        assert (text_of(seen), error_of(seen)["code"], seen.done) == ("Hello", "upstream_error", False)
    scene.assert_paid_so_far(customer, 3, 2, times=4)


async def test_t3_a_server_that_flags_no_end_is_not_taken_into_service(
    scene: TritonScene, customer: Customer, relay: TritonRelay
) -> None:
    relay.ending = triton_relay.without_flags
    worker = scene.offer("stock_ensemble", protocol="grpc", grpc_endpoint=f"127.0.0.1:{relay.port}")
    assert (worker["status"], worker["last_probe"]["error"]) == ("unhealthy", "not_ready")
    assert worker["detail"] == "gRPC: the stream ended without 'triton_final_response'"
    seen = await scene.ask(customer, "one")
    assert (seen.status, error_of(seen)["code"]) == (503, "no_worker_available")
    scene.assert_unpaid(customer)


@pytest.mark.parametrize(
    "ending", [triton_relay.as_it_is, triton_relay.error_after_the_end, triton_relay.flag_on_the_last_output]
)
async def test_t3_after_the_flag_nothing_is_read(
    scene: TritonScene, customer: Customer, relay: TritonRelay, ending: Ending
) -> None:
    through(scene, relay, "stock_ensemble", ending)
    for whole in STREAM_AND_WHOLE:
        seen = await scene.ask(customer, play({"text": "Hel"}, {"text": "lo"}), whole=whole)
        assert (seen.status, text_of(seen), reasons_of(seen)) == (200, "Hello", ["stop"]), seen.payloads
    scene.assert_paid(customer, 3, 2, times=2)


async def test_t3_a_stream_that_the_server_leaves_open_after_its_flag_has_ended(
    scene: TritonScene, customer: Customer, relay: TritonRelay
) -> None:
    through(scene, relay, "stock_ensemble", triton_relay.left_open)
    seen = await scene.ask(customer, play({"text": "Hel"}, {"text": "lo"}))
    assert (text_of(seen), reasons_of(seen), seen.done) == ("Hello", ["stop"], True)
    scene.assert_paid(customer, 3, 2)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([UNTIL_CLOSE, plain(said("Hel")), plain(said("lo")), Close()], id="until-close"),
        pytest.param(
            scripts.stream(said("Hel"), said("lo"), Close(), done=False, last_chunk=False), id="no-last-chunk"
        ),
        pytest.param(scripts.stream(said("Hel"), said("lo"), scripts.Reset(), done=False), id="reset"),
    ],
)
async def test_t3_an_http_body_that_ends_with_its_connection_is_cut_and_costs_nothing(
    scene: TritonScene, customer: Customer, scripted: FakeWorker, steps: list[Step]
) -> None:
    answers(scene, scripted, steps)
    await assert_cut(scene, customer, "one", "Hello")


async def test_t3_an_http_body_that_ends_by_itself_is_whole(
    scene: TritonScene, customer: Customer, scripted: FakeWorker
) -> None:
    content = plain(said("Hel")) + plain(said("lo"))
    for steps in (
        scripts.stream(said("Hel"), said("lo"), done=False),
        [scripts.answer(200, content, "text/event-stream")],
        # The model says that it has ended; how the body does is then one.
        [UNTIL_CLOSE, plain(said("Hel")), plain(said("lo", finish_reason="stop")), Close()],
    ):
        answers(scene, scripted, steps)
        for whole in STREAM_AND_WHOLE:
            seen = await scene.ask(customer, "one", whole=whole)
            assert (seen.status, text_of(seen), counts_of(seen)) == (200, "Hello", (3, 2)), seen.payloads
    scene.assert_paid(customer, 3, 2, times=6)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (said(["one", "two"]), "invalid_upstream_response"),
        (said(7), "invalid_upstream_response"),
        (said("x", num_output_tokens=1.0), "usage_missing"),
        (said("x", num_output_tokens=True), "usage_missing"),
        (said("x", num_output_tokens="1.5"), "usage_missing"),
        (said("x", num_output_tokens=2**63), "usage_missing"),
    ],
)
async def test_u9_values_of_the_wrong_kind_over_http_cost_nothing(
    scene: TritonScene, customer: Customer, scripted: FakeWorker, frame: dict[str, Any], code: str
) -> None:
    answers(scene, scripted, scripts.stream(frame, done=False))
    whole = await scene.ask(customer, "one", whole=True)
    assert (whole.status, error_of(whole)["code"]) == (502, code)
    seen = await scene.ask(customer, "one")
    assert (error_of(seen)["code"], seen.done) == (code, False)
    scene.assert_unpaid(customer)
