"""Cannot be told to leave the prompt out: a whole answer begins with it and counts it, a stream does not."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the engine that these models share

from scripted import ScriptedModel, Wire


class TritonPythonModel(ScriptedModel):
    wire = Wire(
        exclude_input=None,
        echoes=True,
    )
