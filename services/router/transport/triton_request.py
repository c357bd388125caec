"""From a client's request to what is sent to a Triton model. Pure; imported by the Triton transport.

Nothing that the model does not declare is sent, and no field of the client's but those of the parameter table and those
that the registration names. What was not sent is named, so that the client can be told.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from speedinfer.common.v1 import operation_pb2

from services.router.transport.port import Dispatch
from services.router.transport.template import ChatTemplate
from services.router.transport.triton_errors import rejected
from services.router.transport.triton_model import (
    END_ID,
    EXCLUDE_INPUT,
    MAX_TOKENS,
    PAD_ID,
    RETURN_COUNTS,
    RETURN_REASONS,
    STREAM,
    Tensor,
)
from services.router.transport.triton_model import TensorPlan as Plan
from services.router.transport.triton_params import NEUTRAL_FIELDS, STOP_WORDS, Parameter, Scalar, read, words
from services.router.transport.triton_tensors import InputTensor, fit


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as the model gets it, and what its answer is read by."""

    inputs: tuple[InputTensor, ...]
    prompt: str
    # The model was told to answer piece by piece.
    pieces: bool
    limit: int | None
    stops: tuple[str, ...]
    # The model was told them, too.
    model_stops: bool
    ignored: tuple[str, ...]


def prepare(
    plan: Plan, template: ChatTemplate, dispatch: Dispatch, now: datetime, *, end_id: int | None, pad_id: int | None
) -> Asked:
    """The tensors of a request. WorkerFailure (400, naming the field) where a value does not fit."""
    if dispatch.choices > 1:
        raise rejected("this model gives one choice only", param="n")
    members = dict(dispatch.members)
    if dispatch.operation == operation_pb2.OPERATION_CHAT_COMPLETION:
        prompt = _rendered(plan, template, members, now)
    else:
        prompt = _completion_prompt(members)
    text = fit(plan.text, (prompt,), "prompt")
    assert text is not None, "the plan allows one element"
    pieces = plan.decoupled and dispatch.stream
    inputs = [text, *_own(plan, dispatch.output_limit, pieces, {END_ID: end_id, PAD_ID: pad_id})]
    stop = members.pop("stop", None)
    stops = words("stop", orjson.loads(stop)) if stop is not None else ()
    model_stops = False
    for parameter, tensor in plan.parameters:
        value = _parameter(parameter, tensor, members, stops)
        if value is not None:
            inputs.append(value)
            model_stops = model_stops or (parameter.name == STOP_WORDS and bool(stops))
    ignored = tuple(name for name in members if name not in NEUTRAL_FIELDS)
    return Asked(tuple(inputs), prompt, pieces, dispatch.output_limit, stops, model_stops, ignored)


def _rendered(plan: Plan, template: ChatTemplate, members: dict[str, bytes], now: datetime) -> str:
    variables: Any = orjson.loads(members.pop("chat_template_kwargs", b"{}"))
    if not isinstance(variables, dict):
        raise rejected("'chat_template_kwargs' must be an object", param="chat_template_kwargs")
    messages = orjson.loads(members.pop("messages", b"null"))
    return template.render(messages, variables, now, strip_bos=plan.adds_bos)


def _completion_prompt(members: dict[str, bytes]) -> str:
    prompt = orjson.loads(members.pop("prompt", b"null"))
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise rejected("'prompt' must be a string or a list of one string", param="prompt")
    return prompt


def _own(plan: Plan, limit: int | None, pieces: bool, ids: dict[str, int | None]) -> list[InputTensor]:
    """What the gateway says itself."""
    values: dict[str, Scalar | None] = {MAX_TOKENS: limit, STREAM: pieces, EXCLUDE_INPUT: True, **ids}
    values |= dict.fromkeys((*RETURN_COUNTS, *RETURN_REASONS), True)
    inputs: list[InputTensor] = []
    for role, tensor in plan.own.items():
        value = values[role]
        if value is not None:
            inputs += [fitted] if (fitted := fit(tensor, (value,), role)) else []
        elif role == MAX_TOKENS and not tensor.optional:
            # A refusal for the context's length says `limit_demanded`, so that nobody asks so after it.
            raise rejected("this model takes no request without an output limit", param="max_tokens")
    return inputs


def _parameter(
    parameter: Parameter, tensor: Tensor, members: dict[str, bytes], stops: tuple[str, ...]
) -> InputTensor | None:
    field, values = parameter.name, ()  # type: tuple[str, tuple[Scalar, ...]]
    if parameter.name == STOP_WORDS:
        field, values = "stop", stops
    else:
        for name in parameter.fields:
            if name in members and not values:
                field, values = name, read(parameter, name, members.pop(name))
    value = fit(tensor, values, field) if values else None
    if value is None and values and parameter.name != STOP_WORDS:
        raise rejected(f"'{field}' has a number of values that this model does not take", param=field)
    if value is None and not tensor.optional and parameter.neutral is not None:
        return fit(tensor, parameter.neutral, field)
    return value
