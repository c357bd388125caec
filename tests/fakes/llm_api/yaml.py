"""PyYAML's `safe_load` for files that are JSON, which is YAML. NVIDIA's images have the real one; the environment that runs
Triton in the tests need not."""

from __future__ import annotations

import json
from typing import Any


class YAMLError(Exception):
    """The file is no YAML."""


def safe_load(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise YAMLError(str(error)) from None
