"""A stand-in for TensorRT-LLM's public LLM API: its names and shapes, and an engine that says what it is told.

See `llmapi.py`. Copied beside a Triton model's `model.py` by the tests, and imported by nothing else.
"""

from .llmapi import LLM, SamplingParams

__all__ = ["LLM", "SamplingParams"]
