"""The sampling parameters that a request may carry into a Triton model: a table, and the reading of one value.

A row says which of the client's fields a parameter comes from, the tensor names that stock models use for it (the first
that a model declares is meant), and its range. What a row does not allow is refused as the client's fault, by the name of
the client's field. Pure; imported by the Triton transport.
"""

import math
from dataclasses import dataclass
from typing import Any

import orjson

from services.router.transport.triton_errors import rejected

MAX_WORDS = 64
MAX_WORD_CHARS = 4096
_WHOLE_FROM = 2**63

Scalar = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Parameter:
    """One row."""

    name: str
    # The client's fields; the first one present counts.
    fields: tuple[str, ...]
    # Names of the tensor in stock models, old and new.
    tensors: tuple[str, ...]
    # `number`, `integer`, `words` (a list of texts), or `any`: whatever fits the declared type.
    kind: str
    minimum: float | None = None
    maximum: float | None = None
    # What is sent where a model demands the tensor and the client says nothing: a value that changes nothing.
    neutral: tuple[Scalar, ...] | None = None


def _number(name: str, low: float | None, high: float | None, neutral: float) -> Parameter:
    return Parameter(name, (name,), (name, f"sampling_param_{name}"), "number", low, high, (neutral,))


TABLE: tuple[Parameter, ...] = (
    _number("temperature", 0, None, 1.0),
    _number("top_p", 0, 1, 1.0),
    _number("min_p", 0, 1, 0.0),
    _number("presence_penalty", -2, 2, 0.0),
    _number("frequency_penalty", -2, 2, 0.0),
    _number("repetition_penalty", 0, None, 1.0),
    _number("length_penalty", None, None, 1.0),
    Parameter("top_k", ("top_k",), ("top_k", "sampling_param_top_k"), "integer", -1, None, (0,)),
    Parameter("min_tokens", ("min_tokens",), ("min_tokens", "min_length"), "integer", 0, None, (0,)),
    # A seed that everybody shares would make all answers alike, so it has no neutral value.
    Parameter("seed", ("seed",), ("seed", "random_seed", "sampling_param_seed"), "integer"),
    Parameter("stop_words", ("stop",), ("stop_words", "sampling_param_stop"), "words", neutral=("",)),
    Parameter("bad_words", ("bad_words", "bad"), ("bad_words",), "words", neutral=("",)),
)

STOP_WORDS = "stop_words"

# Fields that ask for nothing where the router lets them through to a model that cannot honour them (`n: 1`, `tools: []`),
# so that leaving them out drops nothing.
NEUTRAL_FIELDS = frozenset({
    "n", "best_of", "logprobs", "top_logprobs", "echo", "suffix", "response_format", "tools", "tool_choice",
    "parallel_tool_calls", "functions", "function_call", "logit_bias",
})  # fmt: skip


def further(name: str, tensor: str) -> Parameter:
    """The row of a parameter that only the registration knows."""
    return Parameter(name, (name,), (tensor,), "any")


def read(parameter: Parameter, field: str, text: bytes) -> tuple[Scalar, ...]:
    """The values that a client's JSON text gives. WorkerFailure (400, naming the field) if it does not fit the row."""
    value = orjson.loads(text)
    if parameter.kind == "words":
        return words(field, value)
    if parameter.kind == "any":
        return _any(field, value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise rejected(f"'{field}' must be a number", param=field)
    if parameter.kind == "integer" and not isinstance(value, int):
        # Whole numbers of more than 64 bits were read as floats.
        wrong = "is out of range" if abs(value) >= _WHOLE_FROM else "must be an integer"
        raise rejected(f"'{field}' {wrong}", param=field)
    if parameter.minimum is not None and value < parameter.minimum:
        raise rejected(f"'{field}' must be at least {parameter.minimum:g}", param=field)
    if parameter.maximum is not None and value > parameter.maximum:
        raise rejected(f"'{field}' must be at most {parameter.maximum:g}", param=field)
    return (value,)


def words(field: str, value: Any) -> tuple[str, ...]:
    """A text or a list of texts; empty ones mean nothing and are left out."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(word, str) for word in listed):
        raise rejected(f"'{field}' must be a string or a list of strings", param=field)
    if len(listed) > MAX_WORDS or any(len(word) > MAX_WORD_CHARS for word in listed):
        raise rejected(
            f"'{field}' takes at most {MAX_WORDS} strings of at most {MAX_WORD_CHARS} characters each", param=field
        )
    return tuple(word for word in listed if word)


def _any(field: str, value: Any) -> tuple[Scalar, ...]:
    listed = value if isinstance(value, list) else [value]
    if len(listed) > MAX_WORDS or not all(isinstance(item, (bool, int, float, str)) for item in listed):
        raise rejected(f"'{field}' must be a plain value or a list of at most {MAX_WORDS} of them", param=field)
    return tuple(listed)
