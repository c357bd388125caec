"""What a Triton registration may say."""

import pytest
from pydantic import ValidationError

from services.router.transport.triton_config import TritonConfig
from services.router.transport.triton_link import grpc_target

CONTRACT = {
    "transport": "triton",
    "model_name": "ensemble",
    "input_name": "text_input",
    "max_tokens_input_name": "max_tokens",
    "output_name": "text_output",
    "prompt_tokens_output_name": "prompt_tokens",
    "completion_tokens_output_name": "completion_tokens",
}


def test_the_contracts_registration_is_taken_as_it_stands() -> None:
    config = TritonConfig.model_validate(CONTRACT)
    assert (config.model_name, config.prompt_tokens_output_name) == ("ensemble", "prompt_tokens")
    assert (config.protocol, config.usage_mode, config.text_mode) == ("auto", "auto", "auto")


def test_an_unknown_key_is_refused_by_its_name() -> None:
    with pytest.raises(ValidationError) as caught:
        TritonConfig.model_validate({**CONTRACT, "modle_version": "1"})
    assert [(e["type"], e["loc"]) for e in caught.value.errors()] == [("extra_forbidden", ("modle_version",))]


def test_further_inputs_are_gathered_by_their_pattern() -> None:
    config = TritonConfig.model_validate({**CONTRACT, "temperature_input_name": "temp", "top_k_input_name": "k"})
    assert config.further_inputs == {"temperature": "temp", "top_k": "k"}
    assert config.max_tokens_input_name == "max_tokens"


@pytest.mark.parametrize("name", ["lora_request", "prompt_token_ids", "chat_template", "n", "beam_width"])
def test_no_tensor_is_named_for_a_field_that_never_passes(name: str) -> None:
    with pytest.raises(ValidationError, match=name):
        TritonConfig.model_validate({**CONTRACT, f"{name}_input_name": "anything"})


@pytest.mark.parametrize("key", ["_input_name", "Temp_input_name", "temperature_output_name", "further_inputs"])
def test_other_patterns_stay_unknown(key: str) -> None:
    with pytest.raises(ValidationError):
        TritonConfig.model_validate({**CONTRACT, key: {} if key == "further_inputs" else "x"})


def test_secrets_do_not_show_in_a_refusal() -> None:
    with pytest.raises(ValidationError) as caught:
        TritonConfig.model_validate({**CONTRACT, "headers": {"authorization": "secret-value"}, "nope": 1})
    assert "secret-value" not in str(caught.value)


def test_a_version_may_be_a_number() -> None:
    assert TritonConfig.model_validate({**CONTRACT, "model_version": 3}).model_version == "3"


def test_a_public_model_is_mapped_to_the_workers_own() -> None:
    config = TritonConfig.model_validate({**CONTRACT, "model_map": {"acme/b": "other"}})
    assert (config.worker_model("acme/a"), config.worker_model("acme/b")) == ("ensemble", "other")


@pytest.mark.parametrize(
    ("endpoint", "configured", "target"),
    [
        ("http://triton:8000", None, ("triton:8001", False)),
        ("https://triton:8443/", None, ("triton:8444", True)),
        ("http://[::1]:8000", None, ("[::1]:8001", False)),
        ("http://triton", None, ("", False)),
        ("http://triton:8000", "other:9000", ("other:9000", False)),
        ("http://triton:8000", "grpcs://other:9000", ("other:9000", True)),
    ],
)
def test_where_grpc_answers(endpoint: str, configured: str | None, target: tuple[str, bool]) -> None:
    assert grpc_target(endpoint, configured) == target


@pytest.mark.parametrize("endpoint", ["other", "ftp://other:1", "other:x", "http://user:pw@other:1"])
def test_a_grpc_endpoint_needs_host_and_port(endpoint: str) -> None:
    with pytest.raises(ValidationError):
        TritonConfig.model_validate({**CONTRACT, "grpc_endpoint": endpoint})
