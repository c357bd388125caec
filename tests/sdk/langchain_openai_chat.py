"""LangChain's `ChatOpenAI`: from its messages and exceptions to a `Seen`."""

import json
from collections.abc import Mapping
from typing import Any

import httpx2
import openai
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_openai import ChatOpenAI

from tests.sdk.openai_python import TIMEOUT_S, refusal
from tests.sdk.seen import Seen


def chat_model(base_url: str, key: str, body: Mapping[str, Any], http: httpx2.Client, **options: Any) -> ChatOpenAI:
    """The model of a request, whose further members go as `extra_body`. `http` spares the making of one for each."""
    extra = {name: value for name, value in body.items() if name not in ("model", "messages", "stream")}
    settings: dict[str, Any] = {"max_retries": 0, "timeout": TIMEOUT_S, "extra_body": extra or None, **options}
    return ChatOpenAI(base_url=base_url, api_key=key, model=body["model"], http_client=http, **settings)


def read(model: ChatOpenAI, body: Mapping[str, Any]) -> Seen:
    """Ask (`stream` or `invoke`, as the body says) and read to the end, or to the exception."""
    seen = Seen()
    try:
        if not body.get("stream"):
            add(seen, model.invoke(body["messages"]))
            return seen
        whole: AIMessageChunk | None = None
        try:
            for chunk in model.stream(body["messages"]):
                assert isinstance(chunk, AIMessageChunk)
                whole = chunk if whole is None else whole + chunk
        finally:
            if whole is not None:
                add(seen, whole)
    except openai.APIError as error:
        seen.refusal = refusal(error)
    return seen


def add(seen: Seen, message: AIMessage) -> None:
    """A message, whole or put together from its chunks by LangChain."""
    assert isinstance(message.content, str)
    seen.text = message.content
    seen.finish_reason = message.response_metadata.get("finish_reason")
    seen.calls = [(call["name"], json.dumps(call["args"])) for call in message.tool_calls]
    if (usage := message.usage_metadata) is not None:
        cached = usage.get("input_token_details", {}).get("cache_read")
        seen.usages.append(
            {
                "prompt_tokens": usage["input_tokens"],
                "completion_tokens": usage["output_tokens"],
                "prompt_tokens_details": {"cached_tokens": cached},
            }
        )
