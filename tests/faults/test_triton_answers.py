"""What a model says of its own answer (why it ended, what it counted, which text) through edge, router and billing."""

import asyncio
import json
from typing import Any

import pytest

from demo.triton_worker import TritonServer
from tests.harness.charges import total_nanos
from tests.harness.stage import COMPLETION_PRICE, PROMPT_PRICE, Customer, Stage
from tests.integration.triton_scene import MODEL, TritonScene, counts_of, error_of, reasons_of, text_of, told_inputs
from tests.triton_models.play import prompt as play

pytest_plugins = ["tests.integration.triton_server"]
pytestmark = pytest.mark.real

BOTH = pytest.mark.parametrize("protocol", ["grpc", "http"])
EOS = "<|im_end|>"
STREAM_AND_WHOLE = (False, True)


@pytest.fixture(scope="module")
def scene(stage: Stage, triton: TritonServer) -> TritonScene:
    return TritonScene(stage.product, triton)


@BOTH
@pytest.mark.parametrize(
    ("response", "limit", "reason"),
    [
        # The model's word stands, also against what the counts would tell.
        ({"out": 2, "finish": "length"}, 9, "length"),
        ({"out": 9, "finish": "stop"}, 9, "stop"),
        ({"out": 2, "finish": "stop", "stop": "2"}, 9, "stop"),
        # It has none, in the words of models that must say something: the counts tell.
        ({"out": 9}, 9, "length"),
        ({"out": 2, "finish": "N/A", "stop": "N/A"}, 9, "stop"),
    ],
)
async def test_the_models_own_reason_to_finish(
    scene: TritonScene, customer: Customer, protocol: str, response: dict[str, Any], limit: int, reason: str
) -> None:
    scene.register("llmapi_counted", protocol=protocol)
    for whole in STREAM_AND_WHOLE:
        seen = await scene.ask(customer, play({"text": "Hello", **response}), whole=whole, max_tokens=limit)
        assert (text_of(seen), reasons_of(seen)) == ("Hello", [reason])
    scene.assert_paid(customer, 3, response["out"], times=2)


@BOTH
@pytest.mark.parametrize("word", ["cancelled", "timeout", "error", "timed_out", "Aborted"])
async def test_a_model_that_gave_up_is_a_failure(
    scene: TritonScene, customer: Customer, protocol: str, word: str
) -> None:
    scene.register("llmapi_counted", protocol=protocol)
    shown = play({"text": "Hel", "out": 1}, {"text": "Hello", "out": 1, "finish": word})
    seen = await scene.ask(customer, shown)
    assert (seen.status, text_of(seen), seen.done, reasons_of(seen)) == (200, "Hello", False, [])
    assert error_of(seen)["code"] == "upstream_error"
    for whole in STREAM_AND_WHOLE:
        seen = await scene.ask(customer, play({"text": "", "out": 0, "finish": word}), whole=whole)
        assert (seen.status, error_of(seen)["code"]) == (502, "upstream_error")
    scene.assert_unpaid(customer)


@BOTH
async def test_a_stop_that_the_model_names_takes_its_beginning_out_of_the_text(
    scene: TritonScene, customer: Customer, protocol: str
) -> None:
    scene.register("llmapi_counted", protocol=protocol)
    left = {"out": 1, "finish": "stop"}
    for whole in STREAM_AND_WHOLE:
        seen = await scene.ask(
            customer, play({"text": "one\nUs", **left, "stop": "\nUser:"}), whole=whole, stop="\nUser:"
        )
        assert (text_of(seen), reasons_of(seen)) == ("one", ["stop"])
        # An end for another reason gives the same text out.
        seen = await scene.ask(customer, play({"text": "one\nUs", **left, "stop": "2"}), whole=whole, stop="\nUser:")
        assert (text_of(seen), reasons_of(seen)) == ("one\nUs", ["stop"])
    scene.assert_paid(customer, 3, 1, times=4)


@BOTH
async def test_the_configured_eos_token_is_cut_at_the_very_end_and_nowhere_else(
    scene: TritonScene, customer: Customer, protocol: str
) -> None:
    scene.register("stock_ensemble", protocol=protocol, eos_token=EOS)
    pieces = [{"text": "a <|im_"}, {"text": f"end|> b{EOS}"}, {"text": f"c</s>{EOS}<|im"}, {"text": "_end|>"}]
    seen = await scene.ask(customer, play(*pieces))
    assert (text_of(seen), reasons_of(seen), seen.done) == (f"a {EOS} b{EOS}c</s>{EOS}", ["stop"], True)
    whole = await scene.ask(customer, play({"text": f"end{EOS}", "out": 4}), whole=True)
    assert text_of(whole) == "end"
    scene.assert_paid(customer, 3, 4, times=2)
    scene.register("stock_ensemble", protocol=protocol)
    assert text_of(await scene.ask(customer, play({"text": f"end{EOS}"}))) == f"end{EOS}"


@pytest.mark.parametrize(
    ("stops", "pieces", "text"),
    [
        # The first that is complete ends the text, however it is cut.
        (["abcd", "c"], ["x", "ab", "c", "d"], "xab"),
        (["abcd", "c"], ["xabcd"], "xab"),
        (["ab", "abc"], ["xa", "bc"], "x"),
        (["é\u3042"], ["xé", "\u3042y"], "x"),
        (["END"], ["xE", "N", "x"], "xENx"),
    ],
)
async def test_stop_sequences_at_the_border_of_two_responses(
    scene: TritonScene, customer: Customer, stops: list[str], pieces: list[str], text: str
) -> None:
    scene.register("stock_ensemble")
    seen = await scene.ask(customer, play(*({"text": piece} for piece in pieces)), stop=stops)
    assert (text_of(seen), reasons_of(seen), seen.done) == (text, ["stop"], True)
    scene.assert_paid(customer, *counts_of(seen))


@BOTH
async def test_a_text_so_far_that_shrinks_and_changes(scene: TritonScene, customer: Customer, protocol: str) -> None:
    scene.register("llmapi_counted", protocol=protocol)
    texts = ("Hello wor", "Hello", "", "Hello world", "Hello, world!!")
    seen = await scene.ask(customer, play(*({"text": text} for text in texts)))
    assert (text_of(seen), seen.done) == ("Hello world!!", True)
    whole = await scene.ask(customer, play(*({"text": text} for text in texts)), whole=True)
    assert text_of(whole) == "Hello, world!!"
    scene.assert_paid(customer, 3, 5, times=2)


@BOTH
async def test_a_text_so_far_that_is_another_text_is_not_read_on(
    scene: TritonScene, customer: Customer, protocol: str
) -> None:
    scene.register("stock_ensemble", protocol=protocol, text_mode="cumulative")
    # A first letter in common is chance.
    for other in ("world", "Here we go"):
        responses = play({"text": "Hello"}, {"text": other})
        seen = await scene.ask(customer, responses)
        assert (text_of(seen), error_of(seen)["code"], seen.done) == ("Hello", "invalid_upstream_response", False)
        whole = await scene.ask(customer, responses, whole=True)
        assert (whole.status, error_of(whole)["code"]) == (502, "invalid_upstream_response")
    scene.assert_unpaid(customer)


@BOTH
@pytest.mark.parametrize(
    "responses",
    [
        pytest.param([{"out": -1}], id="negative"),
        pytest.param([{"out": 2}, {"out": -1}], id="negative-later"),
        pytest.param([{"in": "N/A"}], id="text"),
        pytest.param([{"out": [[1, 2]]}], id="two-numbers"),
        pytest.param([{"out": None}], id="absent"),
        pytest.param([{"in": None, "out": 5}], id="prompt-absent"),
        pytest.param([{"out": 2**31 - 1}, {"out": 1}], id="sum-over-the-bound"),
    ],
)
async def test_u9_what_is_no_count_is_missing_usage_and_costs_nothing(
    scene: TritonScene, customer: Customer, protocol: str, responses: list[dict[str, Any]]
) -> None:
    scene.register("stock_ensemble", protocol=protocol)
    seen = await scene.ask(customer, play(*({"text": "x", **response} for response in responses)))
    assert (seen.status, seen.done, seen.usage) == (200, False, None)
    assert error_of(seen)["code"] == "usage_missing"
    if len(responses) == 1:
        whole = await scene.ask(customer, play({"text": "x", **responses[0]}), whole=True)
        assert (whole.status, error_of(whole)["code"]) == (502, "usage_missing")
        assert whole.headers["x-should-retry"] == "false"
    scene.assert_unpaid(customer)


@BOTH
@pytest.mark.parametrize(
    ("response", "code"),
    [
        pytest.param({"type": "float32", "out": 2}, "usage_missing", id="fp32"),
        pytest.param({"type": "uint64", "out": 2**64 - 1}, "usage_missing", id="uint64-over-the-bound"),
        pytest.param({"type": "int64", "in": -3}, "usage_missing", id="int64-negative"),
        pytest.param({"more": ["and another"]}, "invalid_upstream_response", id="two-texts"),
    ],
)
async def test_u9_tensors_of_another_type_or_shape_than_declared_cost_nothing(
    scene: TritonScene, customer: Customer, protocol: str, response: dict[str, Any], code: str
) -> None:
    for model, whole in (("stock_ensemble", False), ("stock_ensemble_unary", True)):
        scene.register(model, protocol=protocol, check="metadata")
        seen = await scene.ask(customer, play({"text": "x", **response}), whole=whole)
        assert (error_of(seen)["code"], seen.done) == (code, False), seen.payloads
    scene.assert_unpaid(customer)


@BOTH
async def test_u9_counts_of_any_integer_type_and_only_at_the_very_end_are_counts(
    scene: TritonScene, customer: Customer, protocol: str
) -> None:
    scene.register("stock_ensemble", protocol=protocol)
    uncounted = [{"text": text, "in": None, "out": None} for text in ("a", "b")]
    for last in (
        {"text": None, "type": "int64"},
        {"text": None, "type": "uint32", "final": True},
        {"text": "", "type": "uint64", "final": True},
    ):
        seen = await scene.ask(customer, play(*uncounted, {**last, "out": 2}))
        assert (text_of(seen), counts_of(seen), seen.done) == ("ab", (3, 2), True), (last, seen.payloads)
    scene.assert_paid(customer, 3, 2, times=3)


@BOTH
async def test_t15_any_character_goes_both_ways_as_it_is(scene: TritonScene, customer: Customer, protocol: str) -> None:
    text = 'a\r\n\n\r\u2028\x85\x00\x1b"\\/\u00e9\U0001f600\ufeff data: [DONE]\n\n'
    scene.register("stock_ensemble", protocol=protocol)
    prompt = f"tell=inputs {text}"
    asked = await scene.ask(customer, prompt, whole=True)
    assert told_inputs(asked)["text_input"] == prompt
    usages = [asked.usage or {}]
    for whole in STREAM_AND_WHOLE:
        seen = await scene.ask(customer, play({"text": text}, {"text": text}), whole=whole)
        assert text_of(seen) == text + text
        usages.append(seen.usage or {})
    assert scene.paid_nanos(customer) == total_nanos(usages, PROMPT_PRICE, COMPLETION_PRICE)


@BOTH
async def test_u9_counts_of_any_shape_and_absent_at_the_end_are_counts(
    scene: TritonScene, customer: Customer, protocol: str
) -> None:
    scene.register("unbatched", protocol=protocol)
    pieces = [
        {"text": "a", "in": [[3]], "out": [[[2]]]},
        {"text": "b", "in": [], "out": 1},
        {"text": "c", "in": None, "out": None},
    ]
    seen = await scene.ask(customer, play(*pieces))
    assert (text_of(seen), counts_of(seen), seen.done) == ("abc", (3, 3), True)
    scene.assert_paid(customer, 3, 3)


async def test_u9_three_answers_without_usage_make_the_worker_misconfigured(
    scene: TritonScene, customer: Customer
) -> None:
    scene.register("counts_absent", check="metadata")
    for _ in range(3):
        assert error_of(await scene.ask(customer, "one"))["code"] == "usage_missing"
    worker = scene.product.worker("triton-1")
    assert worker["status"] == "misconfigured"
    seen = await scene.ask(customer, "one")
    assert (seen.status, error_of(seen)["code"]) == (503, "no_worker_available")
    scene.assert_unpaid(customer)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("llmapi_names", "the overlay in deploy/triton/ adds 'num_input_tokens' and 'num_output_tokens'"),
        ("old_names", "model 'old_names' declares no token counts, so it cannot be billed as it is"),
        ("counts_absent", "carried no usable 'num_input_tokens' and 'num_output_tokens'"),
        ("demanding", "input 'end_id' is demanded by model 'demanding' and nothing fills it; set 'end_id'"),
    ],
)
async def test_t9_u9_a_registration_that_cannot_serve_says_why_by_name(
    scene: TritonScene, customer: Customer, model: str, said: str
) -> None:
    worker = scene.offer(model)
    assert worker["status"] == "misconfigured"
    assert said in json.dumps(worker, ensure_ascii=False)
    seen = await scene.ask(customer, "one")
    assert (seen.status, error_of(seen)["code"]) == (503, "no_worker_available")
    scene.assert_unpaid(customer)


@BOTH
async def test_a_full_queue_is_back_pressure_for_one_worker_and_no_failure_with_two(
    scene: TritonScene, customer: Customer, protocol: str
) -> None:
    scene.register("queue_full", protocol=protocol)
    slow = "one two three tokens=1 delay=1000"
    alone = await asyncio.gather(*(scene.ask(customer, slow) for _ in range(7)))
    answered = [seen for seen in alone if seen.status == 200]
    refused = [seen for seen in alone if seen.status != 200]
    assert answered
    assert refused
    for seen in refused:
        assert (seen.status, error_of(seen)["code"]) == (503, "overloaded")
        assert 1 <= int(seen.headers["retry-after"]) <= 60
    assert scene.product.worker("triton-1")["circuit"] == "closed"
    scene.offer("stock_ensemble", worker_id="triton-2", weight=0.001)
    try:
        two = await asyncio.gather(*(scene.ask(customer, slow.replace("1000", "999")) for _ in range(7)))
        assert [(seen.status, text_of(seen)) for seen in two] == [(200, "tok0")] * 7
        async with scene.client(customer) as http:
            told = [(await http.get(f"/requests/{seen.headers['x-request-id']}")).json() for seen in two]
        assert 2 in [one["attempts"] for one in told], told
    finally:
        scene.remove("triton-2")
    scene.assert_paid_so_far(customer, 5, 1, times=len(answered) + 7)


async def test_a_chat_is_rendered_and_paid(scene: TritonScene, customer: Customer) -> None:
    template = "{% for m in messages %}{{ m.role }} says {{ m.content }} {% endfor %}"
    scene.register("stock_bls", chat_template=template)
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello there"}], "max_tokens": 2}
    async with scene.client(customer) as http:
        answer = (await http.post("/chat/completions", json=body)).json()
    assert answer["choices"][0]["message"]["content"] == "tok0 tok1"
    assert answer["usage"]["prompt_tokens"] == 4
    scene.assert_paid(customer, 4, 2)
