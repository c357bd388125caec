"""What the edge needs to know of a request, and the rules that all three operations share. Pure.

The body itself stays the client's: its members go on as they were written, less those that the gateway decides (model,
stream, stream_options, the output limit) and those that are null. What is checked is what decides money or routing; the
rest is the worker's business.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from speedinfer.common.v1.operation_pb2 import Operation
from speedinfer.router.v1.fleet_pb2 import FEATURE_CHOICES, FEATURE_LOGIT_BIAS, FEATURE_STRUCTURED_OUTPUT, Feature

from services.edge import fields
from services.edge.prompt_size import PromptSize

MAX_MODEL_LENGTH = 256
MAX_SEQUENCES = 128
MAX_STOPS = 64
LIMIT_NAMES = ("max_tokens", "max_completion_tokens")
_OURS = frozenset({"model", "stream", "stream_options", *LIMIT_NAMES})
# Names of other APIs for the width of a search; no transport passes them on.
_BEAMS = ("beam_width", "num_beams", "num_return_sequences")
# The runtimes' own names for the shape of an answer.
_STRUCTURE = (
    "ebnf", "grammar", "guided_choice", "guided_grammar", "guided_json", "guided_regex", "json_schema", "regex",
    "structured_outputs",
)  # fmt: skip


class UsageWish(Enum):
    """What the client said of the usage frame."""

    NOT_SAID = "not said"
    WANTED = "wanted"
    NOT_WANTED = "not wanted"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The edge's own limits on a body."""

    max_depth: int = 64
    max_messages: int = 4096
    max_inputs: int = 2048


@dataclass(frozen=True, slots=True)
class Need:
    """A feature that the worker must have, and the member that asks for it."""

    feature: Feature.ValueType
    param: str


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """A request that was checked."""

    operation: Operation.ValueType
    model: str
    stream: bool
    usage_wish: UsageWish
    members: tuple[tuple[str, bytes], ...]
    prompt: PromptSize
    # Per choice; None where the client gave none.
    output_limit: int | None
    choices: int
    sequences: int
    needs: tuple[Need, ...]


def model_of(body: Mapping[str, Any]) -> str:
    """The public model that is asked for."""
    name = fields.text(body, "model", required=True, max_length=MAX_MODEL_LENGTH)
    assert name is not None
    return name


def output_limit(body: Mapping[str, Any]) -> int | None:
    """The client's limit. Both names may be there; the smaller is what cannot surprise anybody."""
    found = [limit for name in LIMIT_NAMES if (limit := fields.integer(body, name, 1)) is not None]
    return min(found) if found else None


def streaming(body: Mapping[str, Any]) -> tuple[bool, UsageWish]:
    """Whether the answer is a stream, and what the client wishes of usage in it."""
    stream = fields.boolean(body, "stream") or False
    options = fields.mapping(body, "stream_options") or {}
    include = options.get("include_usage")
    if include is not None and not isinstance(include, bool):
        fields.refuse("stream_options.include_usage", "'stream_options.include_usage' must be true or false.")
    if not stream or include is None:
        return stream, UsageWish.NOT_SAID
    return stream, UsageWish.WANTED if include else UsageWish.NOT_WANTED


def sequences(body: Mapping[str, Any]) -> tuple[int, int]:
    """(choices that the answer has, sequences that are generated at most)."""
    choices = fields.integer(body, "n", 1, MAX_SEQUENCES) or 1
    best_of = fields.integer(body, "best_of", 1, MAX_SEQUENCES) or choices
    if best_of < choices:
        fields.refuse("best_of", "'best_of' must be at least 'n'.")
    for name in _BEAMS:
        if (fields.integer(body, name, 1, MAX_SEQUENCES) or 1) > 1:
            fields.refuse(name, f"'{name}' is not supported; 'best_of' says how many sequences are searched.")
    return choices, best_of


def check_sampling(body: Mapping[str, Any]) -> None:
    """Types and ranges of the fields that all generating operations share."""
    fields.number(body, "temperature", 0, 2)
    fields.number(body, "top_p", 0, 1)
    fields.number(body, "presence_penalty", -2, 2)
    fields.number(body, "frequency_penalty", -2, 2)
    fields.texts(body, "stop", MAX_STOPS)
    # Signed or not, 64 bits is what any worker declares; which of the two, its transport knows.
    fields.integer(body, "seed", -(2**63), 2**64 - 1)
    fields.mapping(body, "logit_bias")
    fields.mapping(body, "response_format")
    fields.text(body, "user")


def sampling_needs(body: Mapping[str, Any]) -> list[Need]:
    """Needs of the fields that all generating operations share."""
    needs = [Need(FEATURE_CHOICES, name) for name in ("n", "best_of") if (body.get(name) or 1) > 1]
    if body.get("logit_bias"):
        needs.append(Need(FEATURE_LOGIT_BIAS, "logit_bias"))
    shape = body.get("response_format")
    if shape and shape.get("type") != "text":
        needs.append(Need(FEATURE_STRUCTURED_OUTPUT, "response_format"))
    needs += [Need(FEATURE_STRUCTURED_OUTPUT, name) for name in _STRUCTURE if body.get(name) is not None]
    return needs


def passed_on(body: Mapping[str, Any], members: Mapping[str, bytes]) -> tuple[tuple[str, bytes], ...]:
    """The members that the router gets."""
    return tuple((name, text) for name, text in members.items() if name not in _OURS and body.get(name) is not None)
