"""Groups E and U, last: answers of another kind than was asked for, errors in other fields of an event, and members that
stand twice."""

import json
from typing import Any

from tests.fakes import scripts
from tests.fakes.scenario import Answered, Failed, Scenario
from tests.fakes.scripts import Step

_TWO = scripts.usage(12, 2)
_NONSENSE = Failed("invalid_upstream_response", status=502, no_retry=True)
_FAILED = Failed("upstream_error", status=502)
_LATER = Failed("upstream_error", text="Hello")
_VECTOR = {"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}
# Choices that the clients of the other route read, or nobody.
_CHAT: dict[str, dict[str, Any]] = {
    "text": {"text": "Hello"},
    "message": {"message": {"role": "assistant", "content": "Hello"}},
    "delta-null": {"delta": None, "text": "Hello"},
    "delta-text": {"delta": "Hello"},
    "delta-list": {"delta": [{"content": "Hello"}]},
}
_COMPLETION: dict[str, dict[str, Any]] = {
    "delta": {"delta": {"content": "Hello"}},
    "message": {"message": {"role": "assistant", "content": "Hello"}},
    "text-null": {"text": None, "delta": {"content": "Hello"}},
    "text-list": {"text": ["Hello"]},
}
# Answers to two inputs.
_VECTORS: dict[str, list[dict[str, Any]]] = {
    "too-few": [_VECTOR],
    "too-many": [_VECTOR, _VECTOR | {"index": 1}, _VECTOR | {"index": 2}],
    "without-vector": [_VECTOR, {"object": "embedding", "index": 1}],
    "empty-vector": [_VECTOR, {"object": "embedding", "index": 1, "embedding": []}],
}
# What a line of an event says that is an error, whatever the data says.
_ERROR_LINES = {
    "error-field": 'error: {"code":500,"message":"the engine is tired"}\n\n',
    "error-field-bare": "error:\n\n",
    "error-name-alone": "event: error\n\n",
    "error-name-empty": "event: error\ndata:\n\n",
    "error-name-first": "event: error\ndata: \ndata: \n\n",
}


def _other_kind(shape: str, choice: dict[str, Any], route: str) -> Scenario:
    name = f"kind-{route}-{shape}"
    rest = {"index": 0, "finish_reason": "stop"}
    events = [scripts.frame(name, choices=[choice | rest]), scripts.frame(name, choices=[], usage=_TWO)]
    path = "completions" if route == "completion" else "chat/completions"
    return Scenario(name, ("E5",), scripts.stream(*events), _NONSENSE, route=path)


def _vectors(shape: str, data: list[dict[str, Any]], outcome: Answered | Failed = _NONSENSE) -> Scenario:
    name = f"embeddings-{shape}"
    value = {"object": "list", "model": name, "data": data, "usage": {"prompt_tokens": 4, "total_tokens": 4}}
    request = {"input": ["one", "two"]}
    return Scenario(
        name, ("E5",), [scripts.json_answer(value)], outcome, stream=False, route="embeddings", request=request
    )


def _error_lines(shape: str, line: str) -> list[Scenario]:
    error = scripts.chunk(line.encode())
    first, later, last = f"{shape}-first", f"{shape}-later", f"{shape}-last"
    counts = scripts.frame(last, choices=[], usage=_TWO)
    said = Failed("upstream_error", text="Hello", finish_reason="stop")
    return [
        Scenario(first, ("E3",), scripts.stream(error, scripts.delta(first, content="Hello")), _FAILED),
        Scenario(later, ("E3",), scripts.stream(scripts.delta(later, content="Hello"), error), _LATER),
        Scenario(
            last,
            ("E3",),
            # The counts come after the error: until they do, nothing was complete.
            scripts.stream(scripts.delta(last, content="Hello", finish_reason="stop"), error, counts),
            said,
        ),
    ]


def _twice(name: str, body: str, *relays: str) -> Scenario:
    """A whole answer whose text holds a name twice, or half a character: `USAGE` stands for the counts."""
    counts, other = json.dumps(_TWO), json.dumps(scripts.usage(1, 1))
    text = body.replace("USAGE", counts).replace("OTHER", other)
    steps: list[Step] = [scripts.answer(200, text.encode())]
    return Scenario(name, ("U4", "S8"), steps, Answered("Hello", 12, 2, relays=relays), stream=False)


_CHOICE = '"choices": [{"index": 0, "message": {"role":"assistant","content":"Hello"}, "finish_reason": "stop"}]'
SCENARIOS = (
    *(_other_kind(shape, choice, "chat") for shape, choice in _CHAT.items()),
    *(_other_kind(shape, choice, "completion") for shape, choice in _COMPLETION.items()),
    *(_vectors(shape, data) for shape, data in _VECTORS.items()),
    _vectors("two", [_VECTOR, _VECTOR | {"index": 1}], Answered("", 4, 0)),
    *(scenario for shape, line in _ERROR_LINES.items() for scenario in _error_lines(shape, line)),
    _twice("usage-member-twice", f'{{"usage": OTHER, {_CHOICE}, "usage": USAGE}}', _CHOICE),
    _twice("usage-in-choice", f'{{{_CHOICE[:-2]}, "usage": OTHER}}], "usage" : USAGE , "x": 1E400}}', "1E400"),
    _twice(
        "half-character", f'{{"note": "\\ud83d", "big": 1E400, {_CHOICE}, "usage": USAGE}}', '"\\ud83d", "big": 1E400'
    ),
)
