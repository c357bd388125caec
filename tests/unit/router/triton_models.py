"""Metadata and configs of models as Triton's HTTP endpoints give them, for the unit tests of the Triton transport."""

from typing import Any

from services.router.transport.triton_config import TritonConfig
from services.router.transport.triton_model import Problems, TensorPlan, resolve

Entry = tuple[str, str, list[int]] | tuple[str, str, list[int], bool]

STOCK_INPUTS: list[Entry] = [
    ("text_input", "BYTES", [1]),
    ("max_tokens", "INT32", [1]),
    ("stream", "BOOL", [1], True),
    ("stop_words", "BYTES", [-1], True),
    ("bad_words", "BYTES", [-1], True),
    ("end_id", "INT32", [1], True),
    ("top_k", "INT32", [1], True),
    ("top_p", "FP32", [1], True),
    ("temperature", "FP32", [1], True),
    ("seed", "UINT64", [1], True),
    ("beam_width", "INT32", [1], True),
    ("exclude_input_in_output", "BOOL", [1], True),
    ("return_num_input_tokens", "BOOL", [1], True),
    ("return_num_output_tokens", "BOOL", [1], True),
]
STOCK_OUTPUTS: list[Entry] = [
    ("text_output", "BYTES", [-1]),
    ("num_input_tokens", "INT32", [1]),
    ("num_output_tokens", "INT32", [1]),
]
# As NVIDIA's LLM-API model says why it ended.
REASONED_INPUTS: list[Entry] = [
    *STOCK_INPUTS,
    ("return_finish_reason", "BOOL", [1], True),
    ("return_stop_reason", "BOOL", [1], True),
]
REASONED_OUTPUTS: list[Entry] = [*STOCK_OUTPUTS, ("finish_reason", "BYTES", [-1]), ("stop_reason", "BYTES", [-1])]
NAMED_INPUTS: list[Entry] = [("text_input", "BYTES", [1]), ("max_tokens", "INT32", [1])]
NAMED_OUTPUTS: list[Entry] = [
    ("text_output", "BYTES", [-1]),
    ("prompt_tokens", "INT32", [1]),
    ("completion_tokens", "INT32", [1]),
]


def described(
    inputs: list[Entry], outputs: list[Entry], *, batch: int = 8, decoupled: bool = True, **more: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Metadata and config."""
    lead = [-1] if batch else []

    def listed(entries: list[Entry]) -> list[dict[str, Any]]:
        return [{"name": e[0], "datatype": e[1], "shape": [*lead, *e[2]]} for e in entries]

    metadata = {"name": "m", "versions": ["1"], "inputs": listed(inputs), "outputs": listed(outputs)}
    config = {
        "max_batch_size": batch,
        "input": [{"name": e[0], "optional": len(e) > 3 and bool(e[3])} for e in inputs],  # type: ignore[misc]
        "model_transaction_policy": {"decoupled": decoupled},
        **more,
    }
    return metadata, config


def resolved(
    inputs: list[Entry], outputs: list[Entry], settings: dict[str, Any] | None = None, **more: Any
) -> TensorPlan | Problems:
    config = TritonConfig.model_validate({"model_name": "ensemble", **(settings or {})})
    return resolve("ensemble", config, *described(inputs, outputs, **more))


def plan(
    inputs: list[Entry] = STOCK_INPUTS,
    outputs: list[Entry] = STOCK_OUTPUTS,
    settings: dict[str, Any] | None = None,
    **more: Any,
) -> TensorPlan:
    found = resolved(inputs, outputs, settings, **more)
    assert isinstance(found, TensorPlan), found
    return found


def problems(
    inputs: list[Entry] = STOCK_INPUTS,
    outputs: list[Entry] = STOCK_OUTPUTS,
    settings: dict[str, Any] | None = None,
    **more: Any,
) -> tuple[str, ...]:
    found = resolved(inputs, outputs, settings, **more)
    assert isinstance(found, Problems), found
    return found.sentences
