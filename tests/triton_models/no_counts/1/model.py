"""Declares no token counts at all: cannot be billed."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the engine that these models share

from scripted import ScriptedModel, Wire


class TritonPythonModel(ScriptedModel):
    wire = Wire(
        stream=None,
        exclude_input=None,
        prompt_count=None,
        completion_count=None,
    )
