"""Declares the stock token counts and never sends them, as TensorRT-LLM's BLS model did for a while."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the engine that these models share

from scripted import ScriptedModel, Wire


class TritonPythonModel(ScriptedModel):
    wire = Wire(
        prompt_count=None,
        completion_count=None,
    )
