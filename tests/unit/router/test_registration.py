"""Registrations as operators write them."""

import copy
from typing import Any

import pytest

from services.router import registration
from services.router.transport.openai_config import OpenAiConfig

# The contract's two, as they stand there.
TRITON: dict[str, Any] = {
    "worker_id": "trtllm-triton-01",
    "worker_type": "nvidia-gpu",
    "runtime": "tensorrt-llm",
    "runtime_endpoint": "http://triton:8000",
    "supported_models": ["acme/model-1"],
    "runtime_config": {
        "transport": "triton",
        "model_name": "ensemble",
        "input_name": "text_input",
        "max_tokens_input_name": "max_tokens",
        "output_name": "text_output",
        "prompt_tokens_output_name": "prompt_tokens",
        "completion_tokens_output_name": "completion_tokens",
    },
    "runtime_metadata": {"backend": "tensorrt-llm"},
}
OPENAI: dict[str, Any] = {
    "worker_id": "trtllm-api-01",
    "worker_type": "nvidia-gpu",
    "runtime": "tensorrt-llm",
    "runtime_endpoint": "http://trtllm-frontend:8000/v1",
    "supported_models": ["acme/model-1"],
    "runtime_config": {"transport": "openai"},
    "runtime_metadata": {"backend": "tensorrt-llm"},
}


@pytest.mark.parametrize("document", [TRITON, OPENAI])
def test_the_contracts_registrations_are_good_as_they_stand(document: dict[str, Any]) -> None:
    read = registration.read(document)
    assert read.worker_id == document["worker_id"]
    assert read.config.transport == document["runtime_config"]["transport"]
    assert read.document == document
    assert read.shown_config() == document["runtime_config"]


def test_defaults_are_the_contracts() -> None:
    config = registration.read(OPENAI).config
    assert isinstance(config, OpenAiConfig)
    assert (config.connect_timeout_s, config.first_token_timeout_s, config.idle_timeout_s) == (5, 120, 300)
    assert (config.total_timeout_s, config.check, config.stream_options) == (3600, "token", "auto")
    assert config.max_concurrency is None
    assert not config.forward_unknown_fields


def test_further_inputs_are_shown_as_they_were_written_and_secrets_are_not() -> None:
    document = copy.deepcopy(TRITON)
    document["runtime_config"] |= {"temperature_input_name": "temp", "headers": {"X-Key": "hush"}}
    shown = registration.read(document).shown_config()
    assert shown["temperature_input_name"] == "temp"
    assert shown["headers"] == {"X-Key": "***"}


@pytest.mark.parametrize(
    ("place", "value", "field"),
    [
        (("colour",), "red", "colour"),
        (("worker_id",), "", "worker_id"),
        (("worker_id",), "x" * 129, "worker_id"),
        (("worker_id",), 7, "worker_id"),
        (("runtime",), "unknown", "runtime"),
        (("runtime_endpoint",), "trtllm:8000", "runtime_endpoint"),
        (("supported_models",), [" "], "supported_models.0"),
        (("supported_models",), ["a\nb"], "supported_models.0"),
        (("supported_models",), ["a", "a"], "supported_models"),
        (("runtime_metadata",), {"a": "x" * 70_000}, "runtime_metadata"),
        (("runtime_config", "transport"), "http", "runtime_config.transport"),
        (("runtime_config", "transport"), None, "runtime_config.transport"),
        (("runtime_config", "max_token_field"), "x", "runtime_config.max_token_field"),
        (("runtime_config", "max_tokens_field"), "n_predict", "runtime_config.max_tokens_field"),
        (("runtime_config", "api_key"), {"secret": "hush"}, "runtime_config.api_key"),
        (("runtime_config", "connect_timeout_s"), -1, "runtime_config.connect_timeout_s"),
        (("runtime_config", "max_concurrency"), 0, "runtime_config.max_concurrency"),
        (("runtime_config", "weight"), 0, "runtime_config.weight"),
        (("runtime_config", "weight"), float("inf"), "runtime_config.weight"),
        (("runtime_config", "model_map"), {"acme/other": "hush"}, "runtime_config.model_map"),
        (("runtime_config", "headers"), {"Transfer-Encoding": "hush"}, "runtime_config.headers"),
        (("runtime_config", "headers"), {"A B": "hush"}, "runtime_config.headers"),
        (("runtime_config", "headers"), {"A": "hush\r\nB: 1"}, "runtime_config.headers"),
        (("runtime_config", "api_key"), "hush\r\nX-Inj: 1", "runtime_config.api_key"),
        (("runtime_config", "api_key"), "hush\0", "runtime_config.api_key"),
        (("runtime_config", "api_key"), "hush \u0431", "runtime_config.api_key"),
        (("runtime_config",), [], "runtime_config"),
    ],
)
def test_what_is_wrong_is_named_and_no_value_is_repeated(place: tuple[str, ...], value: Any, field: str) -> None:
    document = copy.deepcopy(OPENAI)
    inner = document
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    with pytest.raises(registration.InvalidRegistration) as wrong:
        registration.read(document)
    assert wrong.value.field == field
    assert field in str(wrong.value)
    assert "hush" not in str(wrong.value)


@pytest.mark.parametrize(
    ("name", "value", "wish"),
    [
        ("connect_timeout_s", "5", "a number"),
        ("connect_timeout_s", True, "a number"),
        ("connect_timeout_s", 0, "over 0"),
        ("connect_timeout_s", 86_401, "at most 86400"),
        ("max_concurrency", "5", "a whole number"),
        ("max_concurrency", True, "a whole number"),
        ("max_concurrency", 1.5, "a whole number"),
        ("max_concurrency", 0, "at least 1"),
        ("max_concurrency", 2**32, "at most 1e+06"),
        ("connect_timeout_s", 1e300, "at most 86400"),
        ("first_token_timeout_s", float("inf"), "at most 86400"),
        ("first_token_timeout_s", -0.001, "over 0"),
        ("idle_timeout_s", float("nan"), "at most 86400"),
        ("idle_timeout_s", 0.0, "over 0"),
        ("total_timeout_s", -3600, "over 0"),
        ("total_timeout_s", None, "a number"),
        ("total_timeout_s", 10**400, "a number"),
        ("forward_unknown_fields", "true", "true or false"),
        ("forward_unknown_fields", 1, "true or false"),
        ("check", "all", "'token' or 'metadata'"),
        ("max_tokens_field", "n_predict", "'max_tokens' or 'max_completion_tokens'"),
        ("api_key", 5, "a string"),
        ("headers", [], "an object"),
    ],
)
def test_a_value_of_another_kind_is_refused_in_our_own_words(name: str, value: Any, wish: str) -> None:
    document = copy.deepcopy(OPENAI)
    document["runtime_config"][name] = value
    with pytest.raises(registration.InvalidRegistration) as wrong:
        registration.read(document)
    assert str(wrong.value) == f"runtime_config.{name}: it must be {wish}"


@pytest.mark.parametrize("name", ["worker_id", "runtime", "runtime_endpoint", "supported_models", "runtime_config"])
def test_what_is_missing_is_named(name: str) -> None:
    document = {key: value for key, value in OPENAI.items() if key != name}
    with pytest.raises(registration.InvalidRegistration, match=f"{name} is missing"):
        registration.read(document)


def test_the_grpc_endpoint_is_an_address_like_the_other() -> None:
    document = copy.deepcopy(TRITON)
    document["runtime_config"]["grpc_endpoint"] = "grpc://169.254.169.254:8001"
    with pytest.raises(registration.InvalidRegistration) as wrong:
        registration.read(document)
    assert wrong.value.field == "runtime_config.grpc_endpoint"


@pytest.mark.parametrize(
    ("name", "value"),
    [("x-bin", "hush"), ("X-Bin", "hush"), ("x", "hush \xe9"), ("x", "hush\t"), ("grpc-x", "hush"), ("x!", "hush")],
)
def test_a_header_that_grpc_cannot_send_is_refused_where_it_may_be_sent_over_it(name: str, value: str) -> None:
    document = copy.deepcopy(TRITON)
    document["runtime_config"]["headers"] = {"X-Good_1.a": "hush hush", name: value}
    for protocol in ("auto", "grpc"):
        document["runtime_config"]["protocol"] = protocol
        with pytest.raises(registration.InvalidRegistration, match=f"'{name}'") as wrong:
            registration.read(document)
        assert wrong.value.field == "runtime_config.headers"
        assert "hush" not in str(wrong.value)
    document["runtime_config"]["protocol"] = "http"
    assert registration.read(document).shown_config()["headers"] == {"X-Good_1.a": "***", name: "***"}
