"""OpenAI's JSON for an answer that came as tensors. Pure; imported by the Triton transport.

The parts of a chunk that never change are made once per request; a chunk costs one string to encode.
"""

from typing import Any

import orjson
from speedinfer.common.v1 import operation_pb2

from services.router.usage import Usage


def usage_object(usage: Usage) -> dict[str, int]:
    """OpenAI's `usage`, of counts that are both there."""
    prompt, completion = usage.prompt or 0, usage.completion or 0
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


class OpenAiWriter:
    """Writes the frames of one answer. `created_s` is Unix time."""

    def __init__(
        self, operation: operation_pb2.Operation.ValueType, model: str, request_id: str, created_s: int
    ) -> None:
        self._chat = operation == operation_pb2.OPERATION_CHAT_COMPLETION
        self._id = f"{'chatcmpl' if self._chat else 'cmpl'}-{request_id}"
        self._model = model
        self._created_s = created_s
        opening = orjson.dumps(self._envelope("chat.completion.chunk" if self._chat else "text_completion"))[:-1]
        self._frame = opening + b',"choices":'
        place = b'[{"index":0,"delta":{"content":' if self._chat else b'[{"index":0,"text":'
        self._before = self._frame + place
        self._after = b'%s,"logprobs":null,"finish_reason":null}]}' % (b"}" if self._chat else b"")

    def opening(self) -> bytes | None:
        """The frame that names the role; completions have none."""
        if not self._chat:
            return None
        delta = b'[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}'
        return self._frame + delta

    def text(self, text: str) -> bytes:
        """A frame with content."""
        return self._before + orjson.dumps(text) + self._after

    def ending(self, finish_reason: str) -> bytes:
        """The frame that says why it ended."""
        nothing: dict[str, Any] = {"delta": {}} if self._chat else {"text": ""}
        choice = {"index": 0, **nothing, "logprobs": None, "finish_reason": finish_reason}
        return self._frame + orjson.dumps([choice]) + b"}"

    def usage(self, usage: Usage) -> bytes:
        """The frame that carries usage and no choice."""
        return self._frame + b'[],"usage":' + orjson.dumps(usage_object(usage)) + b"}"

    def whole(self, text: str, finish_reason: str, usage: Usage | None) -> bytes:
        """A whole answer. Without usage it has none: nothing is made up."""
        content: dict[str, Any] = {"text": text}
        if self._chat:
            content = {"message": {"role": "assistant", "content": text, "refusal": None}}
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}
        answer = self._envelope("chat.completion" if self._chat else "text_completion") | {"choices": [choice]}
        if usage is not None:
            answer["usage"] = usage_object(usage)
        return orjson.dumps(answer)

    def _envelope(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created_s, "model": self._model}
