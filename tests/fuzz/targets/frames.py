"""Promise: what a client gets of a worker's frame is what the worker wrote, less usage and with the public model's name; the
counts are those that are written there; and nothing but WorkerFailure is raised, whatever the bytes.
"""

import json
from typing import Any

from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION, OPERATION_EMBEDDING

from services.router.transport.openai_frames import FrameReader, read_whole
from services.router.transport.port import Chunk, WorkerFailure
from services.router.usage import Usage
from tests.fuzz.choices import Choices
from tests.fuzz.oracles import counts, json_text

INSTRUMENTED = (
    "services.common.json_members",
    "services.router.usage",
    "services.router.transport.openai_frames",
    "services.router.transport.openai_errors",
)
PUBLIC = 'acme/"model"-1'
# What the gateway may leave out of a frame that is about usage alone.
_IDENTITY = {"choices", "created", "id", "model", "object", "service_tier", "system_fingerprint", "timings", "usage"}
_ERRORS = ("error", "error_message", "errormessage", "exception", "fault")
_WORDS = ("detail", "errors", "message", "msg")


def check(data: bytes) -> None:
    """The first byte chooses between bytes as they stand and a frame that is built; the second the kind of answer."""
    choices = Choices(data)
    raw, kind = choices.flag(), choices.below(3)
    text = choices.rest() if raw else built(choices).encode("utf-8", "surrogatepass")
    if kind == 0:
        _check_frame(text.replace(b"\r", b" "))
    else:
        _check_whole(text, OPERATION_CHAT_COMPLETION if kind == 1 else OPERATION_EMBEDDING)


def built(choices: Choices) -> str:
    """The text of an object that looks like a frame."""
    members: list[tuple[str, Any]] = []
    while choices.more and len(members) < 10:
        name = choices.pick(
            ("choices", "usage", "model", "id", "object", "error", "detail", "x", "data", 'q"model"', "")
        )
        members.append((name, _member(choices, name)))
    return choices.object_text(members)


def _member(choices: Choices, name: str) -> Any:
    if name == "choices" and choices.below(4):
        return [_choice(choices) for _ in range(choices.below(3))]
    if name == "usage" and choices.below(4):
        return counts.made(choices)
    if name == "model":
        return choices.pick(("w", PUBLIC, "m\n", {"model": "w"}, None))
    if name in ("error", "detail"):
        return choices.pick((None, None, "bad", {"message": "bad", "code": 400}, {"code": "429"}, [{"msg": "x"}], 7))
    if name == "object":
        return choices.pick(("chat.completion.chunk", "error", None))
    return choices.pick((choices.value(), {"model": "inner", "usage": {"prompt_tokens": 9}}))


def _choice(choices: Choices) -> Any:
    delta = choices.pick((
        {"content": "x"}, {"content": ""}, {"role": "assistant"}, {}, None, {"tool_calls": [{"index": 0}]},
        {"reasoning_content": "hm"}, {"content": "\ud83d"}, {"content": None, "refusal": "no"},
    ))  # fmt: skip
    choice: dict[str, Any] = {"index": choices.number(), choices.pick(("delta", "message")): delta}
    if choices.flag():
        choice["finish_reason"] = choices.pick(("stop", "length", "", None, "abort", 5))
    return choices.pick((choice, choice, choice, {"text": "x"}, 7))


def _check_frame(text: bytes) -> None:
    parsed = _parsed(text)
    try:
        chunk = FrameReader(PUBLIC, OPERATION_CHAT_COMPLETION).read(text)
    except WorkerFailure:
        return
    assert isinstance(parsed, dict), "what is no JSON object was taken as a frame"
    plain = text.removeprefix(b"\xef\xbb\xbf").replace(b"\n", b" ")
    expected = _without_errors(_with_model(plain, parsed))
    _check_counts(chunk, parsed)
    if chunk.payload is not None:
        assert b"\n" not in chunk.payload, "a frame that is more than one line"
        assert json_text.members(chunk.payload) == [each for each in expected if each[0] != "usage"]
        _check_errors(chunk.payload)
        if "usage" not in parsed and expected == json_text.members(plain):
            assert chunk.payload == plain, "a frame with nothing to change was changed"
        if [name for name, _ in expected].count("usage") == 1 and expected == json_text.members(plain):
            assert _is_cut_out(plain, chunk.payload), "more was changed than that usage is gone"
    else:
        said = {name for name, value in parsed.items() if value is not None and not (name == "choices" and not value)}
        said = {name for name in said if name.casefold() not in _ERRORS}
        assert "usage" in parsed
        assert said <= _IDENTITY, f"{said - _IDENTITY} was left out"
    if chunk.usage_frame is not None:
        kept = dict(json_text.members(chunk.usage_frame))
        assert kept["usage"] == dict(expected)["usage"]
        assert set(kept.items()) <= set(expected)
    _check_content(chunk, parsed, "delta")


def _is_cut_out(whole: bytes, rest: bytes) -> bool:
    """Whether `rest` is the whole less one piece of it."""
    return len(rest) < len(whole) and _alike(whole, rest) + _alike(whole[::-1], rest[::-1]) >= len(rest)


def _alike(one: bytes, other: bytes) -> int:
    """How many bytes they begin with in common."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _check_whole(text: bytes, operation: Any) -> None:
    parsed = _parsed(text)
    try:
        chunk = read_whole(text, PUBLIC, operation)
    except WorkerFailure:
        return
    assert isinstance(parsed, dict), "what is no JSON object was taken as an answer"
    assert chunk.payload is not None
    assert json_text.members(chunk.payload) == _without_errors(_with_model(text.removeprefix(b"\xef\xbb\xbf"), parsed))
    _check_errors(chunk.payload)
    _check_counts(chunk, parsed)
    if operation == OPERATION_CHAT_COMPLETION:
        _check_content(chunk, parsed, "message")


def _parsed(text: bytes) -> Any:
    try:
        return json_text.value(text.removeprefix(b"\xef\xbb\xbf"))
    except ValueError:
        return None


def _with_model(text: bytes, parsed: dict[str, Any]) -> list[tuple[str, str]]:
    members = json_text.members(text)
    if not isinstance(parsed.get("model"), str) or parsed["model"] == PUBLIC:
        return members
    # A name that is written anew stands once, in its first place.
    first = [name for name, _ in members].index("model")
    public = (members[first][0], json.dumps(PUBLIC))
    return [public if at == first else each for at, each in enumerate(members) if at == first or each[0] != "model"]


def _without_errors(members: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Less what libraries take for an error although nothing is in it, and such names where they stand twice."""
    names = [name for name, _ in members]
    return [
        (name, value)
        for name, value in members
        if name.casefold() not in _ERRORS + _WORDS
        or (names.count(name) == 1 and (name.casefold() not in _ERRORS or value == "null"))
    ]


def _check_errors(payload: bytes) -> None:
    """Nothing is relayed that a client would take for an error."""
    for name, value in json_text.members(payload):
        assert name.casefold() not in _ERRORS or value == "null", "an error was relayed"


def _check_counts(chunk: Chunk, parsed: dict[str, Any]) -> None:
    read = counts.read(parsed.get("usage"))
    if read is None:
        assert chunk.usage is None, "counts where none were written"
        return
    assert chunk.usage is not None
    prompt, cached, completion, malformed = read
    assert chunk.usage == Usage(prompt, cached, completion, malformed)


def _check_content(chunk: Chunk, parsed: dict[str, Any], part: str) -> None:
    """Only what needs no judgement: a text is content, a role is none."""
    choices = [each for each in parsed.get("choices") or [] if isinstance(each, dict)]
    deltas = [each[part] for each in choices if isinstance(each.get(part), dict)]
    if any(isinstance(delta.get("content"), str) and delta["content"] for delta in deltas):
        assert chunk.content, "content that is not seen as such"
    if all(set(delta) <= {"role"} for delta in deltas):
        assert not chunk.content, "content where there is none"
    reasons = {each["finish_reason"] for each in choices if isinstance(each.get("finish_reason"), str)} - {""}
    assert set(chunk.finished.values()) <= reasons
    assert bool(chunk.finished) == bool(reasons)
