"""NVIDIA's stock BLS model: the ensemble's tensors, and inputs for images, videos and draft tokens."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the engine that these models share

from scripted import ScriptedModel, Wire


class TritonPythonModel(ScriptedModel):
    wire = Wire()
