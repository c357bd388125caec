"""What a request sends to a model, and what it never sends."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from speedinfer.common.v1 import operation_pb2

from services.router.transport.port import Dispatch, WorkerFailure
from services.router.transport.template import ChatTemplate
from services.router.transport.triton_model import TensorPlan
from services.router.transport.triton_request import Asked, prepare
from tests.unit.router.triton_models import (
    NAMED_INPUTS,
    REASONED_INPUTS,
    REASONED_OUTPUTS,
    STOCK_INPUTS,
    STOCK_OUTPUTS,
    Entry,
    plan,
)

NOW = datetime(2026, 12, 2, tzinfo=UTC)
CHAT = operation_pb2.OPERATION_CHAT_COMPLETION
TEXT = operation_pb2.OPERATION_COMPLETION


def ask(
    found: TensorPlan,
    body: Mapping[str, Any],
    *,
    operation: operation_pb2.Operation.ValueType = TEXT,
    stream: bool = False,
    limit: int | None = 9,
    choices: int = 1,
    template: str = "<s>{{ messages[0].content }}{{ extra }}",
) -> Asked:
    members = [(name, json.dumps(value).encode()) for name, value in body.items()]
    dispatch = Dispatch("r", 1, operation, "acme/m", stream, members, limit, choices)
    return prepare(found, ChatTemplate(template, bos_token="<s>"), dispatch, NOW, end_id=2, pad_id=None)


def sent(asked: Asked) -> dict[str, tuple[Any, ...]]:
    return {tensor.name: tensor.values for tensor in asked.inputs}


def test_values_go_to_the_names_that_the_model_declares() -> None:
    body = {"prompt": "Hi", "temperature": 0.5, "top_p": 1, "top_k": 40, "seed": 7, "stop": ["a", "", "b"]}
    asked = ask(plan(settings={"end_id": 2}), body, stream=True)
    assert sent(asked) == {
        "text_input": ("Hi",),
        "max_tokens": (9,),
        "stream": (True,),
        "exclude_input_in_output": (True,),
        "return_num_input_tokens": (True,),
        "return_num_output_tokens": (True,),
        "end_id": (2,),
        "temperature": (0.5,),
        "top_p": (1.0,),
        "top_k": (40,),
        "seed": (7,),
        "stop_words": ("a", "b"),
    }
    assert {t.name: t.shape for t in asked.inputs}["stop_words"] == (1, 2)
    assert (asked.stops, asked.model_stops, asked.ignored) == (("a", "b"), True, ())


def test_nothing_undeclared_is_sent_and_what_was_left_out_is_named() -> None:
    body = {
        "prompt": "Hi", "temperature": 0.5, "user": "u", "n": 1, "stop": "x", "lora_request": {"a": 1}, "cache_salt": "s",
        "chat_template": "{{ 1 }}", "beam_width": 4, "prompt_token_ids": [1], "max_new_tokens": 9,
    }  # fmt: skip
    asked = ask(plan(NAMED_INPUTS), body)
    assert sent(asked) == {"text_input": ("Hi",), "max_tokens": (9,)}
    assert asked.ignored == (
        "temperature", "user", "lora_request", "cache_salt", "chat_template", "beam_width", "prompt_token_ids",
        "max_new_tokens",
    )  # fmt: skip
    assert (asked.stops, asked.model_stops) == (("x",), False)


def test_a_declared_beam_width_is_never_sent() -> None:
    assert "beam_width" not in sent(ask(plan(STOCK_INPUTS), {"prompt": "Hi", "beam_width": 4}))


@pytest.mark.parametrize(
    ("decoupled", "stream", "value"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_stream_is_true_only_for_a_stream_from_a_decoupled_model(decoupled: bool, stream: bool, value: bool) -> None:
    asked = ask(plan(decoupled=decoupled), {"prompt": "Hi"}, stream=stream)
    assert sent(asked)["stream"] == (value,)
    assert asked.pieces is value


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_k": 1.5}, "top_k"),
        ({"top_k": 2**31}, "top_k"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.0}, "seed"),
        ({"stop": [1]}, "stop"),
        ({"stop": ["x"] * 65}, "stop"),
        ({"stop": {"a": 1}}, "stop"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
    ],
)
def test_a_wrong_value_is_refused_by_the_clients_name(body: dict[str, Any], param: str) -> None:
    with pytest.raises(WorkerFailure) as caught:
        ask(plan(), {"prompt": "Hi", **body})
    assert (caught.value.http_status, caught.value.param, caught.value.try_another) == (400, param, False)


def test_more_than_one_choice_is_refused() -> None:
    with pytest.raises(WorkerFailure) as caught:
        ask(plan(), {"prompt": "Hi"}, choices=2)
    assert caught.value.param == "n"


def test_the_largest_seed_is_exact() -> None:
    tensor = next(t for t in ask(plan(), {"prompt": "Hi", "seed": 2**64 - 1}).inputs if t.name == "seed")
    assert tensor.raw() == b"\xff" * 8


@pytest.mark.parametrize(
    ("datatype", "seed", "fits"),
    [
        ("UINT64", 0, True), ("UINT64", -1, False), ("UINT64", 2**64, False),
        ("INT64", -(2**63), True), ("INT64", 2**63 - 1, True), ("INT64", 2**63, False),
        ("INT32", -(2**31), True), ("INT32", 2**31, False), ("UINT32", 2**32 - 1, True), ("UINT32", 2**32, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["seed", "random_seed", "sampling_param_seed"])
def test_a_seed_goes_to_the_name_and_type_that_the_model_declares(
    name: str, datatype: str, seed: int, fits: bool
) -> None:
    found = plan([*NAMED_INPUTS, (name, datatype, [1], True)])
    if fits:
        assert sent(ask(found, {"prompt": "Hi", "seed": seed}))[name] == (seed,)
        return
    with pytest.raises(WorkerFailure) as caught:
        ask(found, {"prompt": "Hi", "seed": seed})
    assert (caught.value.http_status, caught.value.param) == (400, "seed")


@pytest.mark.parametrize(
    ("field", "datatype", "written", "said"),
    [
        ("seed", "UINT64", "18446744073709551616", "out of range"),
        ("seed", "UINT64", "-1", "between 0 and 18446744073709551615"),
        ("seed", "INT64", "9223372036854775808", "between -9223372036854775808 and 9223372036854775807"),
        ("seed", "INT32", "2147483648", "between -2147483648 and 2147483647"),
        ("top_k", "UINT32", "-1", "between 0 and 4294967295"),
        ("min_tokens", "INT32", "2147483648", "between -2147483648 and 2147483647"),
        ("top_k", "INT32", "5.0", "must be an integer"),
        ("repetition_penalty", "FP32", "1e39", "between -3.40282e+38 and 3.40282e+38"),
        ("length_penalty", "FP16", "-70000", "between -65504 and 65504"),
    ],
)
def test_a_number_that_the_declared_type_cannot_hold_is_refused_with_its_bounds(
    field: str, datatype: str, written: str, said: str
) -> None:
    found = plan([*NAMED_INPUTS, (field, datatype, [1], True)])
    members = [("prompt", b'"Hi"'), (field, written.encode())]
    dispatch = Dispatch("r", 1, TEXT, "acme/m", False, members, 9, 1)
    with pytest.raises(WorkerFailure) as caught:
        prepare(found, ChatTemplate("x"), dispatch, NOW, end_id=None, pad_id=None)
    assert (caught.value.http_status, caught.value.param) == (400, field)
    assert said in caught.value.message


def test_a_least_length_goes_to_its_old_name() -> None:
    found = plan([*NAMED_INPUTS, ("min_length", "INT32", [1], True)])
    assert sent(ask(found, {"prompt": "Hi", "min_tokens": 3}))["min_length"] == (3,)


def test_reasons_are_asked_for_where_they_are_declared_and_nowhere_else() -> None:
    found = plan(REASONED_INPUTS, REASONED_OUTPUTS)
    asked = sent(ask(found, {"prompt": "Hi"}))
    assert (asked["return_finish_reason"], asked["return_stop_reason"]) == ((True,), (True,))
    assert found.outputs[3:] == ("finish_reason", "stop_reason")
    assert plan().outputs == ("text_output", "num_input_tokens", "num_output_tokens")
    assert "return_finish_reason" not in sent(ask(plan(), {"prompt": "Hi"}))
    # One that is no text cannot be read, and is not asked for.
    numbers: list[Entry] = [*STOCK_OUTPUTS, ("finish_reason", "INT32", [1])]
    assert "finish_reason" not in plan(REASONED_INPUTS, numbers).outputs


def test_demanded_parameters_get_a_value_that_changes_nothing() -> None:
    inputs: list[Entry] = [*NAMED_INPUTS, ("temperature", "FP32", [1]), ("bad_words", "BYTES", [-1])]
    assert sent(ask(plan(inputs), {"prompt": "Hi"})) == {
        "text_input": ("Hi",), "max_tokens": (9,), "temperature": (1.0,), "bad_words": ("",),
    }  # fmt: skip


def test_an_input_that_only_the_registration_knows() -> None:
    inputs: list[Entry] = [*NAMED_INPUTS, ("who", "BYTES", [1], True)]
    found = plan(inputs, settings={"user_input_name": "who"})
    asked = ask(found, {"prompt": "Hi", "user": "u1"})
    assert (sent(asked)["who"], asked.ignored) == (("u1",), ())
    with pytest.raises(WorkerFailure) as caught:
        ask(found, {"prompt": "Hi", "user": 3})
    assert caught.value.param == "user"


def test_without_a_limit_none_is_sent_where_the_model_can_do_without() -> None:
    inputs: list[Entry] = [("text_input", "BYTES", [1]), ("max_tokens", "INT32", [1], True)]
    assert sent(ask(plan(inputs), {"prompt": "Hi"}, limit=None)) == {"text_input": ("Hi",)}
    with pytest.raises(WorkerFailure) as caught:
        ask(plan(), {"prompt": "Hi"}, limit=None)
    assert (caught.value.http_status, caught.value.param, caught.value.code) == (400, "max_tokens", "")
    assert plan().demands_limit
    assert not plan(inputs).demands_limit


def test_a_rendered_bos_is_left_to_a_model_that_adds_its_own_but_never_for_completions() -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": {"extra": "!", "messages": "no"}}
    assert ask(plan(), body, operation=CHAT).prompt == "Hi!"
    adds_none = plan(parameters={"add_special_tokens": {"string_value": "false"}})
    assert ask(adds_none, body, operation=CHAT).prompt == "<s>Hi!"
    assert ask(plan(), {"prompt": ["<s>Hi"]}).prompt == "<s>Hi"


def test_chat_template_kwargs_must_be_an_object() -> None:
    with pytest.raises(WorkerFailure) as caught:
        ask(plan(), {"messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": []}, operation=CHAT)
    assert caught.value.param == "chat_template_kwargs"


def test_without_decoupling_a_stop_is_told_to_the_model_only_if_it_fits() -> None:
    inputs: list[Entry] = [*NAMED_INPUTS, ("stop_words", "BYTES", [1], True)]
    asked = ask(plan(inputs, STOCK_OUTPUTS), {"prompt": "Hi", "stop": ["a", "b"]})
    assert "stop_words" not in sent(asked)
    assert asked.stops == ("a", "b")
