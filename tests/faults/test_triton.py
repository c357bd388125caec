"""Group T, a real Triton behind the real edge, router and billing: what a client reads and pays, whatever a model sends."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from demo.triton_worker import TritonServer
from tests.fakes.canary_words import PROMPT
from tests.harness.charges import charge_nanos, total_nanos
from tests.harness.stage import COMPLETION_PRICE, PROMPT_PRICE, Customer, Stage
from tests.harness.until import until_async
from tests.integration.triton_scene import (
    MODEL,
    TritonScene,
    counts_of,
    error_of,
    reasons_of,
    text_of,
    told_inputs,
)
from tests.triton_models.play import prompt as play

pytest_plugins = ["tests.integration.triton_server"]
pytestmark = pytest.mark.real

BOTH = pytest.mark.parametrize("protocol", ["grpc", "http"])
NAMED = {"prompt_tokens_output_name": "prompt_tokens", "completion_tokens_output_name": "completion_tokens"}
Cancelled = Callable[[str], dict[str, int]]
TRACEBACK = (
    # The prompt again, of which nothing may come into a log.
    f"it broke on {PROMPT}\n"
    'Traceback (most recent call last):\n  File "/models/tensorrt_llm_bls/1/model.py", line 108, in execute\n'
    "    for res in self.decoder.decode(req)\nValueError: the secret prompt\n"
)


@pytest.fixture(scope="module")
def scene(stage: Stage, triton: TritonServer) -> TritonScene:
    return TritonScene(stage.product, triton)


@BOTH
@pytest.mark.parametrize(
    ("model", "config"),
    [
        ("stock_ensemble", {}),
        ("stock_bls", {}),
        ("stock_ensemble_unary", {}),
        ("named_counts", NAMED),
        ("unbatched", {}),
        ("echoes", {}),
        ("usage_last", NAMED),
        ("cumulative_text", {"text_mode": "cumulative"}),
        ("llmapi_counted", {}),
        ("demanding", {"end_id": 2}),
    ],
)
async def test_t1_t2_u9_every_kind_of_model_streams_and_answers_whole(
    scene: TritonScene, customer: Customer, model: str, config: dict[str, Any], protocol: str
) -> None:
    scene.register(model, protocol=protocol, **config)
    for whole in (False, True):
        seen = await scene.ask(customer, "one two three", max_tokens=4, whole=whole)
        assert seen.status == 200, seen.payloads
        assert text_of(seen) == "tok0 tok1 tok2 tok3"
        assert reasons_of(seen) == ["length"]
        assert counts_of(seen) == (3, 4)
        assert seen.done is not whole
    scene.assert_paid(customer, 3, 4, times=2)


@BOTH
async def test_t3_the_end_is_the_final_flag_and_late_counts_count(
    scene: TritonScene, customer: Customer, protocol: str
) -> None:
    scene.register("stock_ensemble", protocol=protocol)
    seen = await scene.ask(
        customer, play({"text": "a", "out": 2}, {"text": None}, {"text": "", "out": 3}), max_tokens=9
    )
    assert (text_of(seen), reasons_of(seen), seen.done) == ("a", ["stop"], True)
    scene.assert_paid(customer, 3, 6)


@BOTH
async def test_t4_an_error_after_content_is_an_event_and_costs_nothing(
    scene: TritonScene, customer: Customer, protocol: str
) -> None:
    scene.register("stock_ensemble", protocol=protocol)
    seen = await scene.ask(customer, play({"text": "Hel"}, {"text": "lo"}, {"error": ["INTERNAL", TRACEBACK]}))
    assert (seen.status, text_of(seen), seen.done, reasons_of(seen)) == (200, "Hello", False, [])
    error = error_of(seen)
    assert error["code"] == "upstream_error"
    assert "secret" not in error["message"]
    assert "model.py" not in error["message"]
    scene.assert_unpaid(customer)


@BOTH
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("model", "code", "message", "status", "said"),
    [
        ("stock_ensemble", "INTERNAL", TRACEBACK, 502, "upstream_error"),
        ("stock_ensemble", "INVALID_ARG", "temperature must be at most 2, got 9", 400, "invalid_request_error"),
        (
            "stock_ensemble",
            "INTERNAL",
            "Executor failed process requestId 7 due to the following error: x",
            502,
            "upstream_error",
        ),
        # NVIDIA's LLM-API model has the text N/A beside its errors.
        ("llmapi_counted", "INTERNAL", "RuntimeError: engine", 502, "upstream_error"),
    ],
)
async def test_t4_an_error_first_is_an_http_error(
    scene: TritonScene,
    customer: Customer,
    protocol: str,
    whole: bool,
    model: str,
    code: str,
    message: str,
    status: int,
    said: str,
) -> None:
    scene.register(model, protocol=protocol)
    seen = await scene.ask(customer, play({"text": "N/A", "error": [code, message]}), whole=whole)
    error = error_of(seen)
    assert seen.status == status
    assert said in (error["code"], error["type"])
    assert not any(word in error["message"] for word in ("secret", "model.py", "N/A", "requestId"))
    scene.assert_unpaid(customer)


@BOTH
@pytest.mark.parametrize("model", ["stock_ensemble", "stock_ensemble_unary"])
@pytest.mark.parametrize("code", ["INTERNAL", "INVALID_ARG"])
async def test_t4_a_prompt_that_is_too_long_is_told_in_the_models_words_whoever_set_the_limit(
    scene: TritonScene, customer: Customer, protocol: str, model: str, code: str
) -> None:
    # The model demands a limit, so asking once more without ours would only lose its words.
    scene.register(model, protocol=protocol)
    words = "Prompt length (5000) exceeds maximum input length (4096)."
    for whole in (False, True):
        for limit in (None, 8):
            seen = await scene.ask(customer, play({"error": [code, words]}), whole=whole, max_tokens=limit)
            error = error_of(seen)
            assert (seen.status, error["message"], error["param"]) == (400, words, None)
            assert (error["type"], error["code"]) == ("invalid_request_error", "context_length_exceeded")
    scene.assert_unpaid(customer)
    assert scene.product.worker("triton-1")["circuit"] == "closed"


@BOTH
@pytest.mark.parametrize("model", ["stock_ensemble", "stock_ensemble_unary"])
async def test_t4_an_error_of_any_length_is_told_by_its_beginning(
    scene: TritonScene, customer: Customer, protocol: str, model: str
) -> None:
    scene.register(model, protocol=protocol)
    for filling in ("x", "one two\n", 'a "quoted" \\ \u00e9 '):
        words = "temperature must be at most 2, got " + filling * (100_000 // len(filling))
        for whole in (False, True):
            seen = await scene.ask(customer, play({"error": ["INVALID_ARG", words]}), whole=whole)
            error = error_of(seen)
            assert (seen.status, error["type"]) == (400, "invalid_request_error")
            assert error["message"] == " ".join(words.split())[:500].strip()
    if (model, protocol) == ("stock_ensemble_unary", "grpc"):
        # It comes in the trailers, whose bound must not look like a server without room.
        seen = await scene.ask(customer, play({"error": ["INVALID_ARG", "x" * 1_100_000]}))
        assert (seen.status, error_of(seen)["code"]) == (502, "upstream_error")
    scene.assert_unpaid(customer)


@BOTH
async def test_t4_streams_that_fail_at_once_leave_the_server_alive(
    scene: TritonScene, customer: Customer, protocol: str
) -> None:
    scene.register("stock_ensemble", protocol=protocol)
    # The client's fault, which no circuit breaker counts.
    failing = play({"error": ["INVALID_ARG", "temperature must be at most 2, got 9"]})
    for _ in range(3):
        seen = await asyncio.gather(*(scene.ask(customer, failing, whole=bool(number % 2)) for number in range(6)))
        assert [each.status for each in seen] == [400] * 6
    for odd in ({"error": ["INTERNAL", ""]}, {"text": "x", "out": [1] * 70_000}, {"text": "x", "more": ["y"]}):
        scene.register("stock_ensemble", protocol=protocol)
        seen = await asyncio.gather(*(scene.ask(customer, play(odd), whole=bool(number % 2)) for number in range(4)))
        assert [each.status for each in seen] == [502] * 4
    scene.register("stock_ensemble", protocol=protocol)
    assert text_of(await scene.ask(customer, "one two three", max_tokens=2)) == "tok0 tok1"
    scene.assert_paid_so_far(customer, 3, 2)


async def test_a_picture_is_refused_by_the_name_of_its_part(scene: TritonScene, customer: Customer) -> None:
    scene.register("stock_ensemble")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    said = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture]}
    body = {"model": MODEL, "messages": [{"role": "system", "content": "Be brief."}, said], "max_tokens": 2}
    async with scene.client(customer) as http:
        answer = await http.post("/chat/completions", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "messages[1].content[1]")
    assert error["message"] == f"'messages[1].content[1]' is not supported by the workers of the model '{MODEL}'."
    scene.assert_unpaid(customer)


async def test_t5_leaving_a_stream_stops_the_model_and_what_was_counted_is_paid(
    scene: TritonScene, customer: Customer, cancelled: Cancelled
) -> None:
    scene.register("endless", protocol="grpc")
    body = {"model": MODEL, "prompt": "one two three", "max_tokens": 10_000, "stream": True}
    async with scene.client(customer) as http, http.stream("POST", "/completions", json=body) as response:
        request_id = response.headers["x-request-id"]
        lines = response.aiter_lines()
        seen = [await anext(lines) for _ in range(6)]
    assert any("tok0" in line for line in seen)
    await until_async(lambda: cancelled("endless").get(f"{request_id}.1"), "the model sees the cancel")
    paid = await asyncio.to_thread(scene.paid_nanos, customer)
    (charge,) = [entry for entry in scene.product.entries(customer.account_id) if entry["kind"] == "charge"]
    usage = charge["usage"]
    assert usage["prompt_tokens"] == 3
    assert 0 < usage["completion_tokens"] < 10_000
    assert paid == charge_nanos(usage, PROMPT_PRICE, COMPLETION_PRICE)


async def test_t5_leaving_a_whole_answer_stops_the_model_and_costs_nothing(
    scene: TritonScene, customer: Customer, cancelled: Cancelled
) -> None:
    scene.register("endless", protocol="grpc")
    before = set(cancelled("endless"))
    body = {"model": MODEL, "prompt": "one two three delay=30000", "max_tokens": 10_000}
    async with scene.client(customer) as http:
        call = asyncio.create_task(http.post("/completions", json=body))
        await until_async(lambda: scene.product.worker("triton-1")["in_flight"] == 1, "the worker has it")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    await until_async(lambda: set(cancelled("endless")) - before, "the model sees the cancel")
    await asyncio.to_thread(scene.assert_unpaid, customer)


@BOTH
async def test_t10_seeds_and_lengths_go_to_the_names_and_types_that_the_model_declares(
    scene: TritonScene, customer: Customer, protocol: str
) -> None:
    scene.register("stock_bls", protocol=protocol)
    asked = {"seed": 2**64 - 1, "min_tokens": 2, "top_k": 5, "presence_penalty": 0.5}
    told = told_inputs(await scene.ask(customer, "tell=inputs", whole=True, **asked))
    assert (told["seed"], told["min_tokens"], told["top_k"], told["presence_penalty"]) == (2**64 - 1, 2, 5, 0.5)
    assert "beam_width" not in told
    scene.register("demanding", protocol=protocol, end_id=2)
    told = told_inputs(await scene.ask(customer, "tell=inputs", whole=True, seed=-7, min_tokens=2))
    assert (told["random_seed"], told["min_length"], told["end_id"], told["bad_words"]) == (-7, 2, 2, "")
    scene.assert_paid(customer, 1, 8, times=2)


@pytest.mark.parametrize(
    ("model", "refused"),
    [
        ("stock_bls", [
            ("seed", -1, "between 0 and 18446744073709551615"),
            ("seed", 2**64, "to 18446744073709551615"),
            ("seed", -(2**63) - 1, "from -9223372036854775808"),
            ("top_k", 2**31, "between -2147483648 and 2147483647"),
            ("top_k", 2**64, "out of range"),
            ("top_k", 5.0, "must be an integer"),
            ("min_tokens", -1, "at least 0"),
            ("min_tokens", 2**40, "between -2147483648 and 2147483647"),
            ("max_tokens", 2**31, "from 1 to 2147483647"),
            ("max_tokens", 2**70, "from 1 to 2147483647"),
            ("repetition_penalty", 1e39, "between -3.40282e+38 and 3.40282e+38"),
            ("length_penalty", -1e300, "between -3.40282e+38 and 3.40282e+38"),
        ]),
        ("demanding", [("seed", 2**63, "between -9223372036854775808 and 9223372036854775807")]),
        ("unbatched", [
            ("seed", 2**31, "between -2147483648 and 2147483647"),
            ("seed", -(2**31) - 1, "between -2147483648 and 2147483647"),
            ("seed", 1.5, "must be an integer"),
        ]),
    ],
)  # fmt: skip
async def test_t10_a_number_that_the_declared_type_cannot_hold_is_refused_by_name_and_bound(
    scene: TritonScene, customer: Customer, model: str, refused: list[tuple[str, float, str]]
) -> None:
    scene.register(model, check="metadata", **({"end_id": 2} if model == "demanding" else {}))
    for name, value, bounds in refused:
        seen = await scene.ask(customer, "one", **{name: value})
        error = error_of(seen)
        assert (seen.status, error["type"], error["param"]) == (400, "invalid_request_error", name), (value, error)
        assert bounds in error["message"]
    scene.assert_unpaid(customer)
    assert scene.product.worker("triton-1")["circuit"] == "closed"


@BOTH
async def test_t11_an_echo_is_cut_and_a_stop_inside_it_does_not_count(
    scene: TritonScene, customer: Customer, protocol: str
) -> None:
    scene.register("echoes", protocol=protocol)
    for whole in (False, True):
        seen = await scene.ask(customer, "one STOP three", max_tokens=3, whole=whole, stop=["STOP", " tok2"])
        assert (text_of(seen), reasons_of(seen)) == ("tok0 tok1", ["stop"])
    scene.assert_paid(customer, 3, 3, times=2)


@BOTH
async def test_t14_an_empty_text_with_usage_is_an_answer_and_no_response_is_none(
    scene: TritonScene, customer: Customer, protocol: str
) -> None:
    scene.register("stock_ensemble", protocol=protocol)
    seen = await scene.ask(customer, play({"text": "", "out": 1}))
    assert (seen.status, text_of(seen), reasons_of(seen), seen.done) == (200, "", ["stop"], True)
    scene.assert_paid(customer, 3, 1)
    seen = await scene.ask(customer, '{"play":[]}')
    assert (seen.status, error_of(seen)["code"]) == (502, "upstream_error")
    scene.assert_paid_so_far(customer, 3, 1)


@BOTH
async def test_t15_characters_cut_between_responses_come_whole(
    scene: TritonScene, customer: Customer, protocol: str
) -> None:
    scene.register("stock_ensemble", protocol=protocol)
    text = "\u90a3 \U0001f600 \ufffd"
    pieces = [text.encode()[at : at + 1].hex() for at in range(len(text.encode()))]
    seen = await scene.ask(customer, play(*({"hex": piece} for piece in pieces)), max_tokens=99)
    assert text_of(seen) == text
    assert (reasons_of(seen), counts_of(seen)) == (["stop"], (3, len(pieces)))
    whole = await scene.ask(customer, play({"hex": (text.encode() + b"\xe9\x82").hex()}), whole=True)
    assert text_of(whole) == f"{text}\ufffd"
    # A stop sequence of several bytes each, cut anywhere.
    stopped = await scene.ask(customer, play(*({"hex": piece} for piece in pieces)), max_tokens=99, stop=" \U0001f600")
    assert (text_of(stopped), reasons_of(stopped)) == ("\u90a3", ["stop"])


@BOTH
@pytest.mark.parametrize("whole", [False, True])
async def test_t17_more_than_4_mib_both_ways(
    scene: TritonScene, customer: Customer, protocol: str, whole: bool
) -> None:
    scene.register("stock_ensemble", protocol=protocol)
    size = 4 * 1024 * 1024 + 1
    sent = await scene.ask(customer, "x" * size, max_tokens=2, whole=whole)
    assert (sent.status, text_of(sent)) == (200, "tok0 tok1"), sent.payloads[0][:200]
    scene.assert_paid(customer, 1, 2)
    got = await scene.ask(customer, play({"fill": size}), whole=whole)
    assert (got.status, len(text_of(got))) == (200, size), got.payloads[0][:200]
    usages = [{"prompt_tokens": 1, "completion_tokens": 2}, {"prompt_tokens": 3, "completion_tokens": 1}]
    assert scene.paid_nanos(customer) == total_nanos(usages, PROMPT_PRICE, COMPLETION_PRICE)


@BOTH
async def test_t18_a_first_token_that_never_comes_is_a_504_and_opens_the_circuit(
    scene: TritonScene, customer: Customer, protocol: str
) -> None:
    scene.register("slow_first", protocol=protocol, first_token_timeout_s=0.2, check="metadata")
    for _ in range(5):
        seen = await scene.ask(customer, "one delay=20000")
        assert (seen.status, error_of(seen)["code"]) == (504, "upstream_timeout")
        assert "first token" in error_of(seen)["message"]
    assert scene.product.worker("triton-1")["circuit"] == "open"
    seen = await scene.ask(customer, "one")
    assert (seen.status, error_of(seen)["code"]) == (503, "no_worker_available")
    scene.assert_unpaid(customer)
    # A new registration begins with a closed circuit, so that the next test is not refused.
    scene.register("stock_ensemble")
