"""The ensemble of TensorRT-LLM 0.16: random_seed, min_length, and no token counts."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the engine that these models share

from scripted import ScriptedModel, Wire


class TritonPythonModel(ScriptedModel):
    wire = Wire(
        prompt_count=None,
        completion_count=None,
    )
