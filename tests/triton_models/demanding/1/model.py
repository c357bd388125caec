"""Demands what TensorRT-LLM 0.5 demanded: bad_words, stop_words and end_id; seeds and lengths by their old names."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the engine that these models share

from scripted import ScriptedModel, Wire


class TritonPythonModel(ScriptedModel):
    wire = Wire()
