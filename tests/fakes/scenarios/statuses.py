"""Group E, the rest: refusals by HTTP status, in every body that servers put behind one."""

from typing import Any

from tests.fakes import scripts
from tests.fakes.scenario import Failed, Scenario

_SAYS = "top_p must be below 1"
_OBJECT = {"error": {"message": _SAYS, "type": "BadRequestError", "param": "top_p", "code": None}}
_PASSED = (400, 413, 422)
_BUSY = (408, 429, 503)
_ALL = (*_PASSED, *_BUSY, 401, 402, 403, 404, 405, 409, 418, 451, 500, 501, 502, 504, 507, 529)


def _outcome(status: int, shown: bool = True) -> Failed:
    """`shown`: the body has words for the client."""
    if status in (*_PASSED, 501):
        says, hides = ((_SAYS,), ()) if shown else ((), (_SAYS, "<"))
        code = "request_too_large" if status == 413 else "invalid_request_error"
        return Failed(code, status=400 if status == 501 else status, says=says, hides=hides)
    if status in _BUSY:
        return Failed("overloaded", status=503, retry_after_s=1, hides=(_SAYS,))
    return Failed("upstream_error", status=502, hides=(_SAYS,))


def _json(name: str, status: int, body: Any, shown: bool = True, stream: bool = True) -> Scenario:
    return Scenario(name, ("E5", "E7"), [scripts.json_answer(body, status)], _outcome(status, shown), stream=stream)


def _other(status: int, *kinds: str) -> list[Scenario]:
    """Bodies that are no JSON objects."""
    page = f"<html><body><h1>{_SAYS}</h1></body></html>".encode()
    bodies = {
        "text": (_SAYS.encode(), "text/plain; charset=utf-8", True),
        "html": (page, "text/html", False),
        "empty": (b"", "application/json", False),
        "nonsense": (b'{"error":', "application/json", False),
        "bytes": (b"\xff\xfe\x00\x01", "application/octet-stream", False),
    }
    return [
        Scenario(f"status-{status}-{kind}", ("E5",), [scripts.answer(status, body, its_type)], _outcome(status, shown))
        for kind, (body, its_type, shown) in bodies.items()
        if kind in kinds
    ]


def _after(name: str, value: str, seconds: int, status: int = 429) -> Scenario:
    """A worker's `Retry-After`, and what the client is told."""
    outcome = Failed("overloaded", status=503, retry_after_s=seconds)
    return Scenario(name, ("E5",), [scripts.json_answer(_OBJECT, status, Retry_After=value)], outcome)


def _leak(name: str, text: str, *hides: str, says: tuple[str, ...] = ()) -> Scenario:
    outcome = Failed("invalid_request_error", status=400, says=says, hides=hides)
    return Scenario(name, ("E5",), [scripts.json_answer({"error": {"message": text}}, 400)], outcome)


# Public shapes of a refusal, each with the same words.
_SHAPES: dict[str, Any] = {
    "object": _OBJECT,
    "text": {"error": _SAYS},
    "flat": {"object": "error", "message": _SAYS, "type": "BadRequestError", "param": None, "code": 400},
    "detail": {"detail": _SAYS},
    "detail-list": {"detail": [{"type": "less_than", "loc": ["body", "top_p"], "msg": _SAYS, "input": 2}]},
    "detail-object": {"detail": {"message": _SAYS, "code": "bad"}},
    "detail-error": {"detail": {"error": {"message": _SAYS}}},
    "message": {"message": _SAYS},
    "msg": {"error": {"msg": _SAYS}},
    "json-text": _SAYS,
    "in-a-list": [_OBJECT],
    "errors": {"errors": [{"message": _SAYS}]},
}
_TRACEBACK = 'Traceback (most recent call last):\n  File "/opt/app/serve.py", line 7, in run\nValueError: secret'
_WORDS = (
    "messages[0].content of meta-llama/Llama-3.1-8B-Instruct: report.py is invalid at line 3 column 7, got 8000 of 4096"
)

SCENARIOS = (
    Scenario(
        "refused-flat",
        ("E5", "E7"),
        [scripts.json_answer({"object": "error", "message": "bad request", "param": None, "code": 400}, 400)],
        Failed("invalid_request_error", status=400, says=("bad request",)),
    ),
    *(_json(f"status-{status}", status, _OBJECT) for status in _ALL),
    *(_json(f"status-{status}-whole", status, _OBJECT, stream=False) for status in (400, 404, 422, 500, 503)),
    *(scenario for status in (400, 500) for scenario in _other(status, "text", "html", "empty", "nonsense", "bytes")),
    *(scenario for status in (404, 413, 422, 429, 501, 502, 503, 504) for scenario in _other(status, "text", "html")),
    *(_json(f"refused-{shape}", 400, body) for shape, body in _SHAPES.items() if shape != "flat"),
    *(_json(f"refused-{shape}-422", 422, body, stream=False) for shape, body in list(_SHAPES.items())[:5]),
    _json("refused-empty-object", 400, {}, shown=False),
    _json("refused-empty-error", 400, {"error": {}}, shown=False),
    _json("refused-null", 400, None, shown=False),
    _after("retry-after-seconds", "7", 7),
    _after("retry-after-503", "7", 7, 503),
    _after("retry-after-long", "86400", 60),
    _after("retry-after-huge", "9" * 40, 60),
    _after("retry-after-zero", "0", 1),
    _after("retry-after-date", "Wed, 21 Oct 2037 07:28:00 GMT", 1),
    _after("retry-after-negative", "-5", 1),
    _after("retry-after-fraction", "1.5", 1),
    _after("retry-after-nonsense", "soon", 1),
    _leak("leak-traceback", f"bad value\n{_TRACEBACK}", "Traceback", "serve.py", "secret", says=("bad value",)),
    _leak("leak-traceback-only", _TRACEBACK, "Traceback", "serve.py", "secret"),
    _leak("leak-address", "cannot reach http://10.0.0.7:8000/v1 or 10.0.0.8:9000", "10.0.0.", says=("cannot reach",)),
    _leak("leak-host", "no route to gpu-7.cluster.local:8000", "gpu-7", "8000", says=("no route",)),
    _leak("leak-path", "cannot open /models/acme/private/config.json", "/models", "private", says=("cannot open",)),
    _leak("leak-key", "bad header Authorization: Bearer sk-abcdefgh12345678", "sk-abc", says=("bad header",)),
    _leak(
        "leak-words",
        "top_k is bad: gpu-node-17 port 8000, engine.py line 40, at 0x7fff12345678 in run(), api key=abc, trt.prod.acme.com",
        *("gpu-node", "8000", "engine", "0x7fff", "run", "abc", "acme"),
        says=("top_k is bad",),
    ),
    _leak(
        "leak-unseen",
        "top_k\u202e is\x1b[31m b\x00ad\u200b",
        "\u202e",
        "\x1b",
        "\x00",
        "\u200b",
        says=("top_k is bad",),
    ),
    _leak("keeps-words", _WORDS, says=(_WORDS,)),
    Scenario(
        "leak-configured-key",
        ("E5",),
        [scripts.json_answer({"error": {"message": "key worker-key-1 may not"}}, 400)],
        Failed("invalid_request_error", status=400, says=("may not",), hides=("worker-key-1",)),
        config={"api_key": "worker-key-1"},
    ),
    Scenario(
        "leak-500",
        ("E5",),
        [scripts.json_answer({"detail": _TRACEBACK}, 500)],
        Failed("upstream_error", status=502, hides=("Traceback", "serve.py", "secret")),
    ),
    Scenario(
        "refused-completions",
        ("E7",),
        [scripts.json_answer(_OBJECT, 400)],
        _outcome(400),
        route="completions",
    ),
    Scenario(
        "refused-embeddings",
        ("E7",),
        [scripts.json_answer(_OBJECT, 400)],
        _outcome(400),
        route="embeddings",
        stream=False,
    ),
    Scenario(
        "failed-embeddings",
        ("E5",),
        [scripts.json_answer(_OBJECT, 500)],
        _outcome(500),
        route="embeddings",
        stream=False,
    ),
)
