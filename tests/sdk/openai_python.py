"""The `openai` SDK for Python, sync and async: from its objects and exceptions to a `Seen`."""

import json
from collections.abc import Mapping
from typing import Any

import openai
from openai import AsyncOpenAI, OpenAI

from tests.sdk.seen import Refusal, Seen

TIMEOUT_S = 15.0


def arguments(body: Mapping[str, Any]) -> dict[str, Any]:
    """The request as arguments of `create`: what any of the three routes needs, all the rest as `extra_body`."""
    own = {name: body[name] for name in ("model", "messages", "prompt", "input", "stream") if name in body}
    return {**own, "extra_body": {name: value for name, value in body.items() if name not in own}}


def read(client: OpenAI, route: str, body: Mapping[str, Any]) -> Seen:
    """Ask and read to the end, or to the exception."""
    seen = Seen()
    try:
        answer = _resource(client, route).create(**arguments(body))
        if body.get("stream"):
            for chunk in answer:
                add(seen, chunk)
        else:
            add(seen, answer)
    except openai.APIError as error:
        seen.refusal = refusal(error)
    return seen


async def read_async(client: AsyncOpenAI, route: str, body: Mapping[str, Any]) -> Seen:
    """The same with the other client."""
    seen = Seen()
    try:
        answer = await _resource(client, route).create(**arguments(body))
        if body.get("stream"):
            async for chunk in answer:
                add(seen, chunk)
        else:
            add(seen, answer)
    except openai.APIError as error:
        seen.refusal = refusal(error)
    return seen


def _resource(client: OpenAI | AsyncOpenAI, route: str) -> Any:
    resources = {
        "chat/completions": client.chat.completions,
        "completions": client.completions,
        "embeddings": client.embeddings,
    }
    return resources[route]


def add(seen: Seen, part: Any) -> None:
    """A whole answer, or a chunk: what the first choice says, as programs read it."""
    if part.usage is not None:
        seen.usages.append(part.usage.model_dump(warnings=False))
    if part.object == "list":
        assert all(isinstance(each.embedding, list) and each.embedding for each in part.data)
        return
    for choice in part.choices:
        seen.finish_reason = choice.finish_reason or seen.finish_reason
        if choice.index != 0:
            continue
        said = getattr(choice, "delta", None) or getattr(choice, "message", None)
        seen.text += (said.content if said is not None else getattr(choice, "text", "")) or ""


def read_calls(client: OpenAI, body: Mapping[str, Any]) -> Seen:
    """A streamed chat through the helper that puts a stream together: for tool calls."""
    asked = arguments(body)
    del asked["stream"]
    seen = Seen()
    with client.chat.completions.stream(**asked) as stream:
        whole = stream.get_final_completion()
    add(seen, whole)
    add_calls(seen, whole)
    return seen


def add_calls(seen: Seen, whole: Any) -> None:
    """The tool calls of a whole answer."""
    calls = whole.choices[0].message.tool_calls or ()
    seen.calls = [(call.function.name, call.function.arguments) for call in calls]


def refusal(error: openai.APIError) -> Refusal:
    """What the exception carries."""
    kind = next(each for each in type(error).__mro__ if each.__module__ == openai.APIError.__module__)
    response = error.response if isinstance(error, openai.APIStatusError) else None
    return Refusal(
        kind.__name__,
        response.status_code if response is not None else None,
        error.code,
        error.type,
        error.message,
        f"{error} {json.dumps(error.body)}",
        response is not None and response.headers.get("x-should-retry") == "false",
    )
