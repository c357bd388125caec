"""Totals so far in each response, under names of their own, unasked."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the engine that these models share

from scripted import ScriptedModel, Wire


class TritonPythonModel(ScriptedModel):
    wire = Wire(
        stream=None,
        exclude_input=None,
        prompt_count="prompt_tokens",
        completion_count="completion_tokens",
        prompt_count_flag=None,
        completion_count_flag=None,
        counts_so_far=True,
    )
