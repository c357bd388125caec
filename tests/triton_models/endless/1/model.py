"""A token every 20 ms until max_tokens or a cancel; `probe_cancelled` tells of the cancels."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the engine that these models share

from scripted import ScriptedModel, Wire


class TritonPythonModel(ScriptedModel):
    wire = Wire(
        length=1_000_000_000,
        interval_ms=20,
    )
