"""From what a model declares to a plan, or to what is wrong with it, by name."""

import pytest

from services.router.transport.triton_config import TritonConfig
from services.router.transport.triton_model import Tensor, TensorPlan, resolve, steps
from tests.unit.router.triton_models import (
    NAMED_INPUTS,
    NAMED_OUTPUTS,
    STOCK_INPUTS,
    STOCK_OUTPUTS,
    Entry,
    described,
    plan,
    problems,
)

NAMED = {"prompt_tokens_output_name": "prompt_tokens", "completion_tokens_output_name": "completion_tokens"}
LLMAPI_INPUTS: list[Entry] = [
    ("text_input", "BYTES", [-1]),
    ("streaming", "BOOL", [1], True),
    ("sampling_param_max_tokens", "INT32", [1], True),
    ("sampling_param_temperature", "FP32", [1], True),
    ("sampling_param_stop", "BYTES", [-1], True),
    ("sampling_param_seed", "UINT64", [1], True),
    ("sampling_param_exclude_input_from_output", "BOOL", [1], True),
    ("stop", "BOOL", [1], True),
]


def test_stock_names_are_found_and_only_declared_ones_planned() -> None:
    found = plan()
    assert found.decoupled
    assert found.outputs == ("text_output", "num_input_tokens", "num_output_tokens")
    assert found.usage_sums is True
    assert [parameter.name for parameter, _ in found.parameters] == [
        "temperature", "top_p", "top_k", "seed", "stop_words", "bad_words",
    ]  # fmt: skip
    assert set(found.own) == {
        "max_tokens", "stream", "exclude_input_in_output", "return_num_input_tokens", "return_num_output_tokens",
    }  # fmt: skip
    assert found.own["max_tokens"].shape(1) == (1, 1)


def test_llmapi_names_are_found_without_a_batch_dimension() -> None:
    found = plan(LLMAPI_INPUTS, STOCK_OUTPUTS, batch=0)
    assert {role: tensor.name for role, tensor in found.own.items()} == {
        "max_tokens": "sampling_param_max_tokens",
        "stream": "streaming",
        "exclude_input_in_output": "sampling_param_exclude_input_from_output",
    }
    assert [(p.name, t.name) for p, t in found.parameters] == [
        ("temperature", "sampling_param_temperature"),
        ("seed", "sampling_param_seed"),
        ("stop_words", "sampling_param_stop"),
    ]
    assert found.text.shape(1) == (1,)
    assert found.cumulative_text


@pytest.mark.parametrize(
    ("declared", "meant"),
    [
        (["seed", "random_seed"], "seed"),
        (["random_seed"], "random_seed"),
        (["sampling_param_seed"], "sampling_param_seed"),
    ],
)
def test_the_first_declared_name_is_meant(declared: list[str], meant: str) -> None:
    found = plan([*NAMED_INPUTS, *((name, "UINT64", [1], True) for name in declared)])
    assert [t.name for p, t in found.parameters if p.name == "seed"] == [meant]


def test_explicit_names_win() -> None:
    inputs: list[Entry] = [
        *STOCK_INPUTS, ("t", "FP32", [1], True), ("my_limit", "INT64", [1], True), ("say", "BYTES", [1], True),
    ]  # fmt: skip
    settings = {"temperature_input_name": "t", "max_tokens_input_name": "my_limit", "user_input_name": "say"}
    # max_tokens itself is demanded and nothing fills it now.
    assert problems(inputs, settings=settings) == (
        "input 'max_tokens' is demanded by model 'ensemble' and nothing fills it; make it optional in the model's config",
    )
    found = plan([e for e in inputs if e[0] != "max_tokens"], settings=settings)
    assert found.own["max_tokens"].name == "my_limit"
    assert {p.name: t.name for p, t in found.parameters}["temperature"] == "t"
    assert {p.name: t.name for p, t in found.parameters}["user"] == "say"


def test_a_wrong_output_name_is_said_with_what_there_is() -> None:
    assert problems(settings=NAMED) == (
        "output 'prompt_tokens' is not declared by model 'ensemble'; it declares text_output, num_input_tokens, "
        "num_output_tokens",
        "output 'completion_tokens' is not declared by model 'ensemble'; it declares text_output, num_input_tokens, "
        "num_output_tokens",
    )


@pytest.mark.parametrize("setting", ["input_name", "max_tokens_input_name", "top_p_input_name", "stream_input_name"])
def test_a_wrong_input_name_is_said_with_what_there_is(setting: str) -> None:
    sentence = problems(NAMED_INPUTS, NAMED_OUTPUTS, {**NAMED, setting: "nope"})[0]
    assert sentence == "input 'nope' is not declared by model 'ensemble'; it declares text_input, max_tokens"


def test_a_model_without_counts_names_the_overlay() -> None:
    (sentence,) = problems(LLMAPI_INPUTS, [("text_output", "BYTES", [-1]), ("finish_reason", "BYTES", [-1])], batch=0)
    assert "declares no token counts" in sentence
    assert "deploy/triton/" in sentence
    assert "finish_reason" in sentence


def test_a_model_that_takes_no_limit_is_refused() -> None:
    (sentence,) = problems([("text_input", "BYTES", [1])])
    assert sentence.startswith("input 'max_tokens' or 'sampling_param_max_tokens' is not declared by model 'ensemble'")


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (("text_input", "FP32", [1]), "input 'text_input' of model 'ensemble' has type FP32; usable types are BYTES"),
        (
            ("max_tokens", "INT32", [2]),
            "input 'max_tokens' of model 'ensemble' has shape [-1,2]; one element a request must fit",
        ),
    ],
)
def test_types_and_shapes_are_looked_at(entry: Entry, sentence: str) -> None:
    inputs = [entry if e[0] == entry[0] else e for e in NAMED_INPUTS]
    assert problems(inputs) == (sentence,)


def test_an_output_of_another_type_is_refused() -> None:
    outputs: list[Entry] = [("text_output", "BYTES", [-1]), ("num_input_tokens", "FP32", [1]), STOCK_OUTPUTS[2]]
    (sentence,) = problems(NAMED_INPUTS, outputs)
    assert sentence.startswith("output 'num_input_tokens' of model 'ensemble' has type FP32; usable types are INT16")


def test_an_optional_stock_input_of_an_unusable_type_is_not_planned() -> None:
    assert plan([*NAMED_INPUTS, ("temperature", "BF16", [1], True)]).parameters == ()


def test_demanded_inputs_that_nothing_fills_are_named() -> None:
    inputs: list[Entry] = [
        *NAMED_INPUTS,
        ("end_id", "INT32", [1]),
        ("image", "UINT8", [-1, -1]),
        ("top_p", "FP32", [1]),
    ]
    assert problems(inputs) == (
        "input 'end_id' is demanded by model 'ensemble' and nothing fills it; set 'end_id'",
        "input 'image' is demanded by model 'ensemble' and nothing fills it; make it optional in the model's config",
    )


def test_end_id_is_planned_only_when_set() -> None:
    assert "end_id" not in plan().own
    assert plan(settings={"end_id": 2}).own["end_id"].name == "end_id"


@pytest.mark.parametrize(
    ("settings", "outputs", "sums"),
    [
        ({}, STOCK_OUTPUTS, True),
        ({"usage_mode": "last"}, STOCK_OUTPUTS, False),
        (NAMED, NAMED_OUTPUTS, None),
        ({**NAMED, "usage_mode": "sum"}, NAMED_OUTPUTS, True),
    ],
)
def test_usage_modes(settings: dict[str, str], outputs: list[Entry], sums: bool | None) -> None:
    assert plan(STOCK_INPUTS, outputs, settings).usage_sums is sums


def test_accumulated_text_and_bos_are_read_from_parameters() -> None:
    parameters = {"accumulate_tokens": {"string_value": "true"}, "add_special_tokens": {"string_value": "False"}}
    found = plan(parameters=parameters)
    assert (found.cumulative_text, found.adds_bos) == (True, False)
    assert not plan(settings={"text_mode": "delta"}, parameters=parameters).cumulative_text
    assert plan(parameters={"add_special_tokens": {"string_value": "${add_special_tokens}"}}).adds_bos


def test_an_ensembles_steps_tell_about_its_text() -> None:
    metadata, config = described(STOCK_INPUTS, STOCK_OUTPUTS)
    config["ensemble_scheduling"] = {"step": [{"model_name": "pre"}, {"model_name": "llm"}, {"model_name": "pre"}]}
    assert steps(config) == ("pre", "llm")
    step = {"parameters": {"add_special_tokens": {"string_value": "false"}}}
    found = resolve("ensemble", TritonConfig(model_name="ensemble"), metadata, config, [step])
    assert isinstance(found, TensorPlan)
    assert not found.adds_bos


@pytest.mark.parametrize(
    ("dims", "count", "shape"),
    [
        ((1,), 1, (1, 1)),
        ((-1,), 3, (1, 3)),
        ((1,), 2, None),
        ((), 1, (1,)),
        ((1, -1), 2, (1, 1, 2)),
        ((-1, -1), 2, (1, 2, 1)),
    ],
)
def test_shapes(dims: tuple[int, ...], count: int, shape: tuple[int, ...] | None) -> None:
    assert Tensor("t", "INT32", dims, batched=True).shape(count) == shape


def test_one_tensor_for_two_parameters_is_refused() -> None:
    (sentence,) = problems(NAMED_INPUTS, NAMED_OUTPUTS, {**NAMED, "colour_input_name": "text_input"})
    assert sentence == (
        "input 'text_input' of model 'ensemble' is named for 2 parameters; each needs a tensor of its own"
    )
