"""The pure modules of the overlay in deploy/triton/: reading a request, counting, reading the settings."""

import sys
from typing import Any

import pytest

from demo.run_install import ROOT

# They lie where Triton wants them.
sys.path.append(str(ROOT / "deploy" / "triton" / "tensorrt_llm" / "1"))

import llm_request
import model_settings
import token_counts


def test_counts_add_up_to_the_most_ids_seen() -> None:
    counts = token_counts.TokenCounts()
    assert [counts.take([0] * length) for length in (1, 1, 4, 2, 3, 6)] == [1, 0, 3, 0, 0, 2]
    assert counts.total == 6
    assert token_counts.TokenCounts().take([]) == 0
    with pytest.raises(TypeError, match="no token ids"):
        counts.take(None)


def test_absent_tensors_stay_absent() -> None:
    asked = llm_request.read({"text_input": [b"hi"]}, add_special_tokens=False)
    assert asked.sampling == {"exclude_input_from_output": True, "add_special_tokens": False}
    assert (asked.streaming, asked.echoes, asked.finish_reason) == (False, True, False)
    asked = llm_request.read({"text_input": [b"hi"], "streaming": [True]}, add_special_tokens=True)
    assert (asked.streaming, asked.echoes) == (True, False)
    every = {"sampling_param_top_k": [-1], "sampling_param_stop": [b"", "ä".encode()], "sampling_param_best_of": [1]}
    told = {"stop": ["ä"], "include_stop_str_in_output": True}
    asked = llm_request.read({"text_input": [b"hi"], **every}, add_special_tokens=True)
    assert asked.sampling == {"exclude_input_from_output": True, "add_special_tokens": True, **told}
    with pytest.raises(llm_request.Refused, match="sampling_param_seed must have one element; got 2"):
        llm_request.read({"text_input": [b"hi"], "sampling_param_seed": [1, 2]}, add_special_tokens=True)


def test_a_text_ends_before_the_stop_word_that_ended_it() -> None:
    assert llm_request.without_stop("a b END", " END") == "a b"
    assert llm_request.without_stop("a b", " END") == "a b"
    # A token id, or none.
    assert llm_request.without_stop("a 2", 2) == llm_request.without_stop("a 2", None) == "a 2"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "must be a mapping"),
        ({"backend": "pytorch"}, "'model' is missing"),
        ({"model": "m", "triton_config": {"max_batch_size": 8}}, "max_batch_size' must be 0"),
        ({"model": "m", "triton_config": {"cancellation_check_period_ms": 0}}, "between 1 and 60000"),
        ({"model": "m", "triton_config": []}, None),
        ({"model": "m", "triton_config": "x"}, "'triton_config' must be a mapping"),
        ({"model": "m", "logits_post_processors": {"a": "b:c"}}, "'logits_post_processors' is not supported"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(content: Any, said: str | None) -> None:
    if said is None:
        assert model_settings.parse(content).llm == {"model": "m"}
        return
    with pytest.raises(model_settings.SettingsProblem, match=said):
        model_settings.parse(content)


def test_settings_go_to_the_engine_as_they_are() -> None:
    settings = model_settings.parse(
        {
            "model": "m",
            "kv_cache_config": {"free_gpu_memory_fraction": 0.8},
            "triton_config": {"decoupled": False, "cancellation_check_period_ms": 50},
        }
    )
    assert settings.llm == {"model": "m", "kv_cache_config": {"free_gpu_memory_fraction": 0.8}}
    assert settings.cancel_check_s == 0.05
