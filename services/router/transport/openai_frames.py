"""One JSON text of a worker's answer -> what the gateway makes of it. Pure; the OpenAI transport imports it.

A parsed copy is looked at; what is relayed is the text itself, with usage cut out of a stream's frames and the public model
name put back. A frame's text never holds a line end, so that it stays one event.
"""

import functools
import json
from collections.abc import Mapping
from typing import Any

from speedinfer.common.v1.operation_pb2 import (
    OPERATION_CHAT_COMPLETION,
    OPERATION_COMPLETION,
    OPERATION_EMBEDDING,
    Operation,
)
from speedinfer.router.v1.frame_pb2 import FAILURE_REASON_INVALID_RESPONSE

from services.common import json_members
from services.router import usage
from services.router.safe_text import PLAIN, SafeText
from services.router.transport import openai_errors, openai_repeats, openai_twins, openai_vectors
from services.router.transport.openai_error_shape import NAMES, is_error
from services.router.transport.port import Chunk, WorkerFailure

DONE = b"[DONE]"
# Of frames that are learned, in vain, before a stream is taken for one that never repeats itself.
MAX_VAIN = 4

# What a delta (or a message) may hold that is content for the client.
_CONTENT = ("content", "tool_calls", "reasoning_content", "reasoning", "refusal", "function_call", "audio")
# Workers name what they think aloud in many ways.
_CONTENT_PREFIXES = ("reasoning", "thinking")
# In the choices of a stream: the part that the operation's clients read, its type, and parts that only others' do.
_PARTS: Mapping[Operation.ValueType, tuple[str, type, tuple[str, ...]]] = {
    OPERATION_CHAT_COMPLETION: ("delta", dict, ("message", "text")),
    OPERATION_COMPLETION: ("text", str, ("message", "delta")),
}
_NOTHING: Mapping[int, str] = {}
# A frame without choices that holds nothing else is about usage alone.
_USAGE_AND_IDENTITY = frozenset({
    "choices", "created", "id", "model", "object", "service_tier", "system_fingerprint", "timings", "usage",
})  # fmt: skip


class FrameReader:
    """Reads the frames of one stream."""

    def __init__(self, model: str, operation: Operation.ValueType, safe: SafeText = PLAIN) -> None:
        self._model = model
        self._part, self._kind, self._foreign = _PARTS[operation]
        self._safe = safe
        self._model_json = _json(model)
        self._first = True
        # What frames like the last one are.
        self._repeat: openai_repeats.Repeat | None = None
        # How often one was learned that no other was like.
        self._vain = 0

    def read(self, text: bytes) -> Chunk:
        """The chunk that a frame's data (not `[DONE]`) is. WorkerFailure if it is an error or no frame at all."""
        text = json_members.unmarked(text)
        if self._repeat is not None and (chunk := self._repeat.read(text)) is not None:
            return chunk
        frame = _object(text)
        chunk = self._read(text, frame)
        if chunk.content and self._vain < MAX_VAIN:
            self._learn(text, frame, chunk)
        return chunk

    def _learn(self, text: bytes, frame: dict[str, Any], chunk: Chunk) -> None:
        if self._repeat is not None and not self._repeat.served:
            self._vain += 1
        self._repeat = openai_repeats.learn(text, frame, chunk, self._part)

    def _read(self, text: bytes, frame: dict[str, Any]) -> Chunk:
        failure = openai_errors.from_frame(frame, self._first, self._safe)
        if failure is not None:
            raise failure
        text = _unambiguous(text, frame)
        if b"\n" in text:
            # Insignificant white space in valid JSON; as a line end it would cut the event in two.
            text = text.replace(b"\n", b" ")
        model = frame.get("model")
        if isinstance(model, str) and model != self._model:
            text = json_members.set_model(text, self._model_json)
        # Whatever is empty is no choices.
        choices = frame.get("choices") or []
        if not isinstance(choices, list):
            raise invalid("a frame's choices are no list")
        content, finished = _look(choices, self._part)
        for choice in choices:
            part = choice.get(self._part)
            # What a client of this route does not read may not be charged to it.
            if not isinstance(part, self._kind) and (
                part is not None or any(choice.get(name) is not None for name in self._foreign)
            ):
                raise invalid(f"a choice without its {self._part}")
        # An error after the role alone is as good as one that comes first: nobody has seen anything yet.
        self._first = self._first and not content
        if "usage" not in frame:
            return Chunk(text, content, finished)
        counts = usage.from_openai(frame["usage"])
        payload, usage_frame = _part(text, frame)
        return Chunk(
            payload=payload,
            content=content,
            finished=finished,
            usage=counts,
            usage_choice=_choice(choices),
            usage_frame=usage_frame if counts is not None else None,
        )

    def read_error(self, data: bytes) -> WorkerFailure:
        """The failure that an event named `error` is."""
        return openai_errors.from_event(data, self._first, self._safe)


def read_whole(
    text: bytes, model: str, operation: Operation.ValueType, choices: int = 1, safe: SafeText = PLAIN
) -> Chunk:
    """The chunk that a whole answer is; `choices`: how many vectors an embedding has. WorkerFailure if it is an error or no
    answer at all."""
    text = json_members.unmarked(text)
    answer = _object(text)
    failure = openai_errors.from_frame(answer, True, safe)
    if failure is not None:
        raise failure
    text = _unambiguous(text, answer)
    served = answer.get("model")
    if isinstance(served, str) and served != model:
        text = json_members.set_model(text, _json(model))
    counts = usage.from_openai(answer.get("usage"))
    parts = answer.get("data" if operation == OPERATION_EMBEDDING else "choices")
    if not isinstance(parts, list):
        raise invalid("the answer is not of the kind that was asked for")
    if operation == OPERATION_EMBEDDING:
        if problem := openai_vectors.problem(parts, choices):
            raise invalid(problem)
        return Chunk(text, content=True, usage=counts)
    kind, name = (dict, "message") if operation == OPERATION_CHAT_COMPLETION else (str, "text")
    if not all(isinstance(each, dict) and isinstance(each.get(name), kind) for each in parts):
        raise invalid(f"a choice without its {name}")
    content, finished = _look(parts, name)
    return Chunk(text, content, finished, usage=counts)


@functools.lru_cache(maxsize=256)
def _json(model: str) -> bytes:
    return json.dumps(model).encode()


def invalid(detail: str) -> WorkerFailure:
    """The failure of a worker that answers nonsense."""
    return WorkerFailure(FAILURE_REASON_INVALID_RESPONSE, "the worker's answer is not valid", detail=detail)


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = json_members.parse(text)
    except json_members.NotJson:
        raise invalid("not JSON") from None
    if isinstance(value, list) and len(value) == 1 and is_error(value[0]):
        # Some servers put their errors into a list.
        value = value[0]
    if not isinstance(value, dict):
        raise invalid("no JSON object")
    return value


def _unambiguous(text: bytes, frame: dict[str, Any]) -> bytes:
    """The text in which everybody reads the same. WorkerFailure where a choice says two things."""
    if openai_twins.contradicts_itself(text, frame):
        raise invalid("a choice that says two things of its end")
    return openai_twins.without_empty_errors(text, frame)


def _part(text: bytes, frame: dict[str, Any]) -> tuple[bytes | None, bytes]:
    """A frame with a member `usage` as it is relayed (None: nothing is left), and as the usage frame is made from it.

    What a frame without choices says besides goes on at once, and not a second time with the usage."""
    if frame.get("choices"):
        return json_members.replace(text, {"usage": None}), text
    # Errors with nothing in them are gone already.
    others = [
        name
        for name, value in frame.items()
        if value is not None and name not in _USAGE_AND_IDENTITY and name.casefold() not in NAMES
    ]
    if not others:
        return None, text
    return json_members.replace(text, {"usage": None}), json_members.replace(text, dict.fromkeys(others))


def _look(choices: list[Any], part: str) -> tuple[bool, Mapping[int, str]]:
    """Whether any choice holds content, and the reasons of those that are finished."""
    content = False
    finished: dict[int, str] = {}
    for position, choice in enumerate(choices):
        if not isinstance(choice, dict):
            raise invalid("a choice is no object")
        said = choice.get(part)
        # What clients of another route would read is no content for this one's.
        if said and (not isinstance(said, dict) or _has_content(said)):
            content = True
        reason = choice.get("finish_reason")
        if reason and isinstance(reason, str):
            if not reason.isidentifier() and PLAIN(reason) != reason.strip():
                raise invalid("a finish_reason that tells of the worker's inside")
            index = choice.get("index")
            finished[index if type(index) is int else position] = reason
    return content, finished or _NOTHING


def _has_content(delta: dict[str, Any]) -> bool:
    # What clients join to what came before.
    written = delta.get("content")
    if written is not None and not isinstance(written, str | list):
        raise invalid("content that is neither text nor parts")
    calls = delta.get("tool_calls")
    if calls and not isinstance(calls, list):
        raise invalid("tool calls that are no list")
    if any(delta.get(name) for name in _CONTENT):
        return True
    return any(value and name.startswith(_CONTENT_PREFIXES) for name, value in delta.items())


def _choice(choices: list[Any]) -> int | None:
    """The choice that a frame's counts are about: the one that it names, if it is one."""
    if len(choices) != 1:
        return None
    index = choices[0].get("index")
    return index if type(index) is int else 0
