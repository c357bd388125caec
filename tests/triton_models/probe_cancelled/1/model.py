"""Tells which requests to another model of this server were cancelled: how many, and a JSON record of each."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the engine that these models share

from cancellations import forget, recorded


class TritonPythonModel:
    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._answer(request) for request in requests]

    def finalize(self) -> None:
        forget()

    def _answer(self, request: Any) -> Any:
        model = pb_utils.get_input_tensor_by_name(request, "model").as_numpy()[0].decode()
        records = [json.dumps(entry).encode() for entry in recorded(model)]
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor("cancelled", np.array([len(records)], dtype=np.int32)),
                pb_utils.Tensor("records", np.array(records, dtype=np.object_)),
            ]
        )
