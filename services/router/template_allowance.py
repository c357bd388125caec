"""How many tokens a worker's chat template adds, measured: what `workers check` tells and `prices set` takes.

A prompt's tokens are bounded by the bytes of its strings plus an allowance for the template: so many a request, so many a
message. Templates differ from a dozen tokens to over a thousand, so it is measured on the worker: chats of one and of three
messages, one-letter contents, without and with a tool. The arithmetic is pure; `measure` asks the worker.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION
from speedinfer.router.v1.fleet_pb2 import FEATURE_TOOLS
from speedinfer.router.v1.frame_pb2 import FAILURE_REASON_USAGE_MISSING

from services.common.ids import uuid7
from services.router.transport.port import Chunk, Dispatch, Transport, WorkerFailure

_FEW, _MANY = 1, 3
# Roles alternate, as many templates demand.
_CHAT = [{"role": ("user", "assistant")[place % 2], "content": "a"} for place in range(_MANY)]
_TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "description": "d",
        "parameters": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]},
    },
}


@dataclass(frozen=True, slots=True)
class Allowance:
    """Tokens that the template adds to a request, and to each of its messages."""

    request_tokens: int
    message_tokens: int


def solve(few_tokens: int, many_tokens: int, other_bytes: int) -> Allowance:
    """The smallest allowance that covers both measured prompts, whose strings are bounded by a byte a token.

    `other_bytes` are counted for the request beside its messages (the tools). The bound of a prompt of k messages, each with
    one byte of content, is then `other_bytes + k + request_tokens + k * message_tokens`.
    """
    each = max(0, -((few_tokens - many_tokens) // (_MANY - _FEW)) - 1)
    whole = max(few_tokens - _FEW * (1 + each), many_tokens - _MANY * (1 + each)) - other_bytes
    return Allowance(max(0, whole), each)


async def measure(transport: Transport, model: str) -> tuple[str, ...]:
    """Findings about the worker's template, as `name: finding` lines with the options of `speedinfer prices set`."""
    try:
        plain = await _allowance(transport, model, ())
    except WorkerFailure as failure:
        return (f"template: not measured ({failure.message})",)
    findings = [_finding("template", "template", plain)]
    if FEATURE_TOOLS in transport.features:
        try:
            tools = await _allowance(transport, model, (_TOOL,))
        except WorkerFailure as failure:
            return (*findings, f"template with tools: not measured ({failure.message})")
        # The bytes of these tools may have paid for the template itself; those of shorter ones would not.
        findings.append(_finding("template with tools", "tools", larger(plain, tools)))
    if transport.counts_tokens:
        findings += [await _count(transport, model, tools) for tools in ((), (_TOOL,))]
    return tuple(findings)


def larger(one: Allowance, other: Allowance) -> Allowance:
    """The allowance that covers both."""
    return Allowance(max(one.request_tokens, other.request_tokens), max(one.message_tokens, other.message_tokens))


def _finding(name: str, option: str, found: Allowance) -> str:
    return (
        f"{name}: adds {found.request_tokens} tokens a request and {found.message_tokens} a message "
        f"(prices set --{option}-request-tokens {found.request_tokens} --{option}-message-tokens {found.message_tokens})"
    )


async def _allowance(transport: Transport, model: str, tools: Sequence[object]) -> Allowance:
    few = await _prompt_tokens(transport, model, _FEW, tools)
    many = await _prompt_tokens(transport, model, _MANY, tools)
    return solve(few, many, len(json.dumps(list(tools), indent=4)) if tools else 0)


async def _count(transport: Transport, model: str, tools: Sequence[object]) -> str:
    """Whether the worker counts as many tokens of a prompt as it reports: an old build may pass over the tools."""
    name = "count with tools" if tools else "count"
    try:
        counted = await transport.count(_dispatch(model, _FEW, tools))
        if counted is None:
            return f"{name}: such requests are not counted"
        reported = await _prompt_tokens(transport, model, _FEW, tools)
    except WorkerFailure as failure:
        return f"{name}: not compared ({failure.detail or failure.message})"
    if counted < reported:
        return f"{name}: SHORT, {counted} tokens where {reported} are reported: set count_tokens to none"
    return f"{name}: {counted} tokens where {reported} are reported"


def _dispatch(model: str, messages: int, tools: Sequence[object]) -> Dispatch:
    members = [("messages", json.dumps(_CHAT[:messages]).encode())]
    if tools:
        members.append(("tools", json.dumps(list(tools)).encode()))
    return Dispatch(uuid7(), 1, OPERATION_CHAT_COMPLETION, model, False, members, output_limit=1)


async def _prompt_tokens(transport: Transport, model: str, messages: int, tools: Sequence[object]) -> int:
    prompt: int | None = None
    async for event in transport.generate(_dispatch(model, messages, tools)):
        if isinstance(event, Chunk) and event.usage is not None:
            prompt = event.usage.prompt
    if prompt is None:
        raise WorkerFailure(FAILURE_REASON_USAGE_MISSING, "no usage reported")
    return prompt
