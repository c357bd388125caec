"""Stock names without a batch dimension; an INT64 and a UINT32 for the counts, a seed of 32 bits."""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the engine that these models share

from scripted import ScriptedModel, Wire


class TritonPythonModel(ScriptedModel):
    wire = Wire(
        batched=False,
        prompt_count_type=np.int64,
        completion_count_type=np.uint32,
    )
