"""Group E, next: errors in the place of an answer, or in the midst of one, under a success status."""

from typing import Any

from tests.fakes import scripts
from tests.fakes.scenario import Answered, Failed, Scenario
from tests.fakes.scripts import Received, Step

_TWO = scripts.usage(12, 2)
_FAILED = Failed("upstream_error", status=502, hides=("engine",))
_TEXT = "the engine is tired"
_LATER = Failed("upstream_error", text="Hello", hides=("engine", "tired"))

# Shapes of errors that name no status.
_SHAPES: dict[str, Any] = {
    "text": {"error": _TEXT},
    "object": {"error": {"message": _TEXT, "type": "server_error", "param": None, "code": None}},
    "object-with-code": {"error": {"message": _TEXT, "code": "engine_dead"}},
    "flat": {"object": "error", "message": _TEXT, "type": "InternalServerError", "param": None, "code": None},
    "flat-without-object": {"message": _TEXT, "type": "InternalServerError", "code": 500},
    "flat-without-code": {"message": _TEXT, "type": "InternalServerError"},
    "typed": {"type": "error", "error": {"type": "overloaded_error", "message": _TEXT}},
    "detail": {"detail": _TEXT},
    "detail-list": {"detail": [{"loc": ["body", "messages"], "msg": _TEXT, "type": "missing"}]},
    "detail-empty": {"detail": ""},
    "empty-object": {"error": {}},
    "empty-text": {"error": ""},
    "list": {"error": [_TEXT]},
    "true": {"error": True},
    "beside-choices": {"id": "x", "choices": [], "error": {"message": _TEXT}},
    "beside-null": {"id": "x", "choices": None, "object": "chat.completion.chunk", "error": _TEXT},
}
# Codes, in the places where servers write them, and what each is as a status.
_REFUSED = Failed("invalid_request_error", status=400, says=("tired",))
_BUSY = Failed("overloaded", status=503, hides=("engine",))
_CODES: dict[str, tuple[dict[str, Any], Failed]] = {
    "400": ({"error": {"message": _TEXT, "code": 400}}, _REFUSED),
    "400-text": ({"error": {"message": _TEXT, "code": "400"}}, _REFUSED),
    "400-flat": ({"object": "error", "message": _TEXT, "code": 400}, _REFUSED),
    "400-beside": ({"error": _TEXT, "code": 400}, _REFUSED),
    "400-status": ({"error": {"message": _TEXT, "status": 400}}, _REFUSED),
    "422": ({"error": {"message": _TEXT, "code": 422}}, Failed("invalid_request_error", status=422, says=("tired",))),
    "413": ({"error": {"message": _TEXT, "code": 413}}, Failed("request_too_large", status=413, says=("tired",))),
    "429": ({"error": {"message": _TEXT, "code": 429}}, _BUSY),
    "503": ({"error": {"message": _TEXT, "code": 503}}, _BUSY),
    "500": ({"error": {"message": _TEXT, "code": 500}}, _FAILED),
    "404": ({"error": {"message": _TEXT, "code": 404}}, _FAILED),
    "200": ({"error": {"message": _TEXT, "code": 200}}, _FAILED),
    "7": ({"error": {"message": _TEXT, "code": 7}}, _FAILED),
}


def _named(data: str) -> bytes:
    """An event that is an error by its name."""
    return scripts.chunk(f"event: error\ndata: {data}\n\n".encode())


def _words(name: str) -> list[Any]:
    return [scripts.delta(name, role="assistant", content=""), scripts.delta(name, content="Hello")]


def _end(name: str) -> list[Any]:
    return [scripts.delta(name, finish_reason="stop"), scripts.frame(name, choices=[], usage=_TWO)]


def _first(name: str, error: Any, outcome: Failed = _FAILED) -> Scenario:
    return Scenario(name, ("E3",), scripts.stream(error), outcome)


def _after_role(name: str, error: Any) -> Scenario:
    steps = scripts.stream(scripts.delta(name, role="assistant", content=""), error)
    return Scenario(name, ("E3", "E6"), steps, _FAILED)


def _later(name: str, error: Any) -> Scenario:
    return Scenario(name, ("E3",), scripts.stream(*_words(name), error, *_end(name)), _LATER)


def _whole(name: str, error: Any, outcome: Failed = _FAILED) -> Scenario:
    return Scenario(name, ("E3",), [scripts.json_answer(error)], outcome, stream=False)


def _context(name: str, stream: bool) -> Scenario:
    """The gateway's own bound does not fit beside the prompt: the request goes once more without it."""

    def script(request: Received) -> list[Step]:
        if "max_tokens" in request.json:
            text = "This model's maximum context length is 64 tokens; 12 in the messages, 4096 in the completion."
            return [scripts.json_answer({"error": {"message": text, "code": None}}, 400)]
        if stream:
            return scripts.chat_stream(name, ["Hello", ", world"], _TWO)
        return [scripts.json_answer(scripts.chat_whole(name, "Hello, world", _TWO))]

    return Scenario(name, ("E5",), script, Answered("Hello, world", 12, 2), stream=stream)


def _context_refused(name: str) -> Scenario:
    """The same of a bound that is the client's own."""
    text = "This model's maximum context length is 64 tokens."
    return Scenario(
        name,
        ("E5", "E7"),
        [
            scripts.json_answer(
                {"error": {"message": text, "code": "context_length_exceeded", "param": "messages"}}, 400
            )
        ],
        Failed("context_length_exceeded", status=400, says=(text,)),
        request={"max_tokens": 500},
    )


def _between(name: str, *events: Any, reason: str | None = "stop") -> Scenario:
    """Nothing counts after an error, whatever was said before."""
    steps = scripts.stream(*_words(name), *events)
    return Scenario(
        name, ("E3",), steps, Failed("upstream_error", text="Hello", finish_reason=reason, hides=("tired",))
    )


_ERROR = {"error": _TEXT}

_INSIDE = 'Traceback (most recent call last): File "/opt/x/engine.py", line 4, at http://10.1.2.3:8000'

SCENARIOS = (
    Scenario("error-first", ("E3",), scripts.stream({"error": "engine failed"}), Failed("upstream_error", status=502)),
    *(_first(f"error-{shape}-first", error) for shape, error in _SHAPES.items()),
    *(_later(f"error-{shape}-later", error) for shape, error in _SHAPES.items()),
    *(_after_role(f"error-{shape}-after-role", _SHAPES[shape]) for shape in ("text", "flat", "detail")),
    *(_whole(f"error-{shape}-whole", _SHAPES[shape]) for shape in ("text", "object", "flat", "detail", "empty-object")),
    *(_first(f"error-code-{code}-first", *of_code) for code, of_code in _CODES.items()),
    *(_later(f"error-code-{code}-later", _CODES[code][0]) for code in ("400", "429")),
    *(_whole(f"error-code-{code}-whole", *_CODES[code]) for code in ("400-flat", "503", "500")),
    Scenario("error-event-first", ("E3",), scripts.stream(_named(_TEXT)), _FAILED),
    Scenario("error-event-code", ("E3",), scripts.stream(_named('{"message":"tired","code":400}')), _REFUSED),
    Scenario(
        "error-event-later",
        ("E3",),
        scripts.stream(*_words("error-event-later"), _named("{}"), *_end("error-event-later")),
        _LATER,
    ),
    _between("error-before-usage", _end("error-before-usage")[0], _ERROR, _end("error-before-usage")[1]),
    _between("error-after-usage", *_end("error-after-usage"), _ERROR),
    _between("error-beside-usage", _end("error-beside-usage")[0], {"choices": [], "usage": _TWO, "error": _TEXT}),
    _between("error-beside-finish", {**_end("error-beside-finish")[0], "error": _TEXT}, reason=None),
    Scenario(
        "error-null-is-none",
        ("E3",),
        scripts.stream(
            *({**each, "error": None} for each in (*_words("error-null-is-none"), *_end("error-null-is-none")))
        ),
        Answered("Hello", 12, 2, relays=('"error":null',)),
    ),
    _context("context-bound-ours", True),
    _context("context-bound-ours-whole", False),
    _context_refused("context-bound-theirs"),
    # Errors that do not say so, in the middle of an answer that then goes on as if nothing had been.
    *(
        Scenario(
            f"later-{word}",
            ("E3",),
            scripts.stream(
                scripts.delta(f"later-{word}", content="Hello"),
                shape,
                scripts.delta(f"later-{word}", finish_reason="stop"),
                scripts.frame(f"later-{word}", choices=[], usage=scripts.usage(12, 2)),
            ),
            Failed("upstream_error", text="Hello", hides=("10.1.2.3", "engine.py")),
        )
        for word, shape in (
            ("message-alone", {"message": _INSIDE}),
            ("code-and-msg", {"code": 500, "msg": _INSIDE}),
            ("exception", {"exception": _INSIDE}),
            ("fault", {"fault": {"faultstring": _INSIDE}}),
            ("detail-beside-no-choices", {"choices": [], "detail": _INSIDE}),
            ("errors-beside-usage", {"errors": [_INSIDE], "usage": scripts.usage(12, 2)}),
            ("error-in-a-choice", {"choices": [{"index": 0, "delta": {}, "error": {"message": _INSIDE}}]}),
        )
    ),
    Scenario(
        "role-then-400",
        ("E7",),
        scripts.stream(
            scripts.delta("role-then-400", role="assistant", content=""),
            {"error": {"message": "the prompt has no end", "code": 400}},
            done=False,
        ),
        Failed("invalid_request_error", status=400, says=("the prompt has no end",)),
    ),
)
