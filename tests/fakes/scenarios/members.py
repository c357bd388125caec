"""Groups E, S and U: members with nothing in them, members that stand twice, words for an end, and values that nobody reads."""

import json
from typing import Any

from tests.fakes import scripts
from tests.fakes.scenario import Answered, Failed, Scenario
from tests.fakes.scripts import Step

_TWO = scripts.usage(12, 2)
_GOOD = Answered("Hello", 12, 2)
_NONSENSE = Failed("invalid_upstream_response", status=502, no_retry=True)
_INSIDE = '{"message":"Traceback at 10.0.0.9:8000 /opt/secret.py"}'
_LEAKS = ("10.0.0.9", "secret", "Traceback")
_SHORT = '"choices":[{"index":0,"delta":{"content":"Hello"}}]'
_CHOICE = '"choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}]'
# What stands beside usage on the last frame, and is none of the client's troubles.
_BESIDE: dict[str, dict[str, Any]] = {
    "message": {"choices": [], "message": ""},
    "words": {"choices": [], "detail": "", "errors": {}, "msg": "ok", "code": 0},
    "error": {"choices": [], "error": {}},
    "error-text": {"choices": [], "error": ""},
    "error-struct": {"choices": [], "error": {"message": "", "code": 0, "param": None}},
    "choices-object": {"choices": {}},
    "choices-false": {"choices": False},
    "remark": {"choices": [], "message": "done"},
}
# More digits are read here as well, but not by Python's own clients.
_NUMBERS = {"exponent": "1e999", "digits": "9" * 4000, "negative": "-" + "9" * 4000}
_GAVE_UP = ("abort ", "internal_error", "request_cancelled", "Timed out", "failed_to_generate")
_ENDED = ("eos_token", "stop_sequence", "max_tokens")
_VECTOR = [0.25, -0.5]
# Answers to two inputs: their vectors, each with its index.
_VECTORS: dict[str, tuple[tuple[Any, Any], ...]] = {
    "of-one-input": ((0, _VECTOR), (0, _VECTOR)),
    "of-another-input": ((0, _VECTOR), (9, _VECTOR)),
    "true": ((0, _VECTOR), (1, True)),
    "object": ((0, _VECTOR), (1, {"values": [1]})),
    "words": ((0, _VECTOR), (1, ["a"])),
}
_REFUSALS = {
    "error-in-error": b'{"error":{"error":{"message":"the prompt is tired"}}}',
    "error-in-message": b'{"error":{"message":{"message":"the prompt is tired"}}}',
    "latin-1": '{"error":{"message":"schön: the prompt is tired"}}'.encode("latin-1"),
}
_ESCAPED = (
    "no %2Fopt%2Fmodels%2Fx: Process 12345 has 70 GiB, generate_async() line 33, user root uid=0, 2130706433:8000"
)


def _ended(name: str, last: Any, outcome: Answered = _GOOD) -> Scenario:
    """A stream that ends with `last`, which holds the counts."""
    steps = scripts.stream(scripts.delta(name, content="Hello"), scripts.delta(name, finish_reason="stop"), last)
    return Scenario(name, ("U1", "S8"), steps, outcome)


def _whole(name: str, members: str, outcome: Answered | Failed = _GOOD, choice: str = _CHOICE) -> Scenario:
    text = f'{{{members}{choice},"usage":{json.dumps(_TWO)}}}'
    steps: list[Step] = [scripts.answer(200, text.encode())]
    return Scenario(name, ("E3", "S8"), steps, outcome, stream=False)


def _taken_back(name: str, members: str) -> Scenario:
    """A frame whose first error a later one takes back."""
    steps = scripts.stream(
        f"{{{members},{_SHORT}}}",
        scripts.delta(name, finish_reason="stop"),
        scripts.frame(name, choices=[], usage=_TWO),
    )
    return Scenario(name, ("E3",), steps, Answered("Hello", 12, 2, relays=(_SHORT,), drops=_LEAKS))


def _reason(word: str, good: bool, stream: bool) -> Scenario:
    name = f"reason-{word.strip().replace(' ', '-').lower()}{'' if stream else '-whole'}"
    if not stream:
        steps: list[Step] = [scripts.json_answer(scripts.chat_whole(name, "Hello", _TWO, word))]
    else:
        last = scripts.delta(name, finish_reason=word)
        steps = scripts.stream(scripts.delta(name, content="Hello"), last, scripts.frame(name, choices=[], usage=_TWO))
    outcome: Answered | Failed = Answered("Hello", 12, 2, finish_reason=word)
    if not good:
        later = Failed("upstream_error", text="Hello", finish_reason=word)
        outcome = later if stream else Failed("upstream_error", status=502)
    return Scenario(name, ("S8",) if good else ("E1",), steps, outcome, stream=stream)


def _two_ends(name: str, first: str, outcome: Answered | Failed) -> Scenario:
    choice = _CHOICE.replace('"finish_reason"', f'"finish_reason":{first},"finish_reason"')
    return _whole(name, "", outcome, choice)


def _vectors(shape: str, vectors: tuple[tuple[Any, Any], ...]) -> Scenario:
    name = f"embeddings-{shape}"
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in vectors]
    value = {"object": "list", "model": name, "data": data, "usage": {"prompt_tokens": 4, "total_tokens": 4}}
    steps: list[Step] = [scripts.json_answer(value)]
    request = {"input": ["one", "two"]}
    return Scenario(name, ("E5",), steps, _NONSENSE, stream=False, route="embeddings", request=request)


def _refused(name: str, body: bytes, *hides: str) -> Scenario:
    refused = Failed("invalid_request_error", status=400, says=("tired",), hides=hides)
    return Scenario(name, ("E7",), [scripts.answer(400, body)], refused)


SCENARIOS = (
    *(
        _ended(f"empty-beside-usage-{shape}", scripts.frame(f"empty-beside-usage-{shape}", **beside, usage=_TWO))
        for shape, beside in _BESIDE.items()
    ),
    *(
        _ended(f"number-{shape}", f'{{"x":{number},"choices":[],"usage":{json.dumps(_TWO)}}}')
        for shape, number in _NUMBERS.items()
    ),
    *(_whole(f"number-{shape}-whole", f'"x":{number},') for shape, number in _NUMBERS.items()),
    _whole("empty-error-whole", '"error":{},'),
    _whole("empty-words-whole", '"error":"","detail":"","message":"","code":0,'),
    _taken_back("error-taken-back", f'"error":{_INSIDE},"error":null'),
    _taken_back("error-taken-back-escaped", f'"\\u0065rror":{_INSIDE},"error":null'),
    _taken_back("exception-taken-back", f'"exception":{_INSIDE},"exception":""'),
    _whole(
        "error-taken-back-whole",
        f'"error":{_INSIDE},"error":null,',
        Answered("Hello", 12, 2, relays=(_CHOICE,), drops=_LEAKS),
    ),
    *(_reason(word, False, stream) for word in _GAVE_UP for stream in (True, False)),
    *(_reason(word, True, True) for word in _ENDED),
    _two_ends("reason-abort-then-stop", '"abort"', _NONSENSE),
    _two_ends("reason-null-then-stop", "null", _GOOD),
    _whole("content-number", "", _NONSENSE, _CHOICE.replace('"Hello"', "5")),
    *(_vectors(shape, vectors) for shape, vectors in _VECTORS.items()),
    *(_refused(f"refused-{shape}", body) for shape, body in _REFUSALS.items()),
    _refused(
        "leak-escaped",
        json.dumps({"error": {"message": f"tired: {_ESCAPED}"}}).encode(),
        *("opt", "12345", "generate_async", "root", "2130706433"),
    ),
)
