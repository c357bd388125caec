"""The settings in model.yaml, the file of the stock model. Pure; imported by model.py.

Everything outside `triton_config` is a keyword argument of `tensorrt_llm.LLM` and goes there unread: the LLM API checks
its own names. Of `triton_config` only `cancellation_check_period_ms` is read; the other two documented keys,
`max_batch_size` and `decoupled`, belong to config.pbtxt here, whatever the stock model's file says about `decoupled`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DEFAULT_CANCEL_CHECK_MS = 100
_TRITON = "triton_config"
# What the stock model makes of other sections is not documented API.
_UNSUPPORTED = ("logits_post_processors",)


class SettingsProblem(ValueError):
    """The file cannot be used; the text is for the operator."""


@dataclass(frozen=True)
class ModelSettings:
    # Keyword arguments of tensorrt_llm.LLM.
    llm: dict[str, Any]
    cancel_check_s: float


def parse(content: Any) -> ModelSettings:
    """From the parsed YAML. SettingsProblem if it is not what it should be."""
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise SettingsProblem("it must be a mapping of names to values")
    if not content.get("model"):
        raise SettingsProblem("'model' is missing: a folder or a name on Hugging Face's hub")
    for name in _UNSUPPORTED:
        if content.get(name):
            raise SettingsProblem(f"'{name}' is not supported by this model")
    triton = content.get(_TRITON) or {}
    if not isinstance(triton, dict):
        raise SettingsProblem(f"'{_TRITON}' must be a mapping")
    if triton.get("max_batch_size"):
        raise SettingsProblem(f"'{_TRITON}.max_batch_size' must be 0: this model has no batch dimension")
    period_ms = triton.get("cancellation_check_period_ms", DEFAULT_CANCEL_CHECK_MS)
    if isinstance(period_ms, bool) or not isinstance(period_ms, (int, float)) or not 1 <= period_ms <= 60_000:
        raise SettingsProblem(f"'{_TRITON}.cancellation_check_period_ms' must be between 1 and 60000")
    return ModelSettings({key: value for key, value in content.items() if key != _TRITON}, period_ms / 1000)
