"""As stock BLS with accumulate_tokens: the text so far in each response, the counts still per response."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the engine that these models share

from scripted import ScriptedModel, Wire


class TritonPythonModel(ScriptedModel):
    wire = Wire(cumulative_text=True)
