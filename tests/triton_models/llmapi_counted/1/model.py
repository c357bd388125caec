"""NVIDIA's LLM-API model with the overlay's counts: cumulative text, no batch dimension, its own reasons to end."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the engine that these models share

from scripted import ScriptedModel, Wire


class TritonPythonModel(ScriptedModel):
    wire = Wire(
        batched=False,
        max_tokens="sampling_param_max_tokens",
        stream="streaming",
        exclude_input="sampling_param_exclude_input_from_output",
        prompt_count_flag=None,
        completion_count_flag=None,
        finish_reason="finish_reason",
        stop_reason="stop_reason",
        cumulative_text=True,
    )
