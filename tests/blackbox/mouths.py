"""Models of a scripted worker that say what they should not: the prompt, their credentials, an answer that breaks off.

For tests/blackbox/test_canaries.py. Every script shows what it got or a canary, in a form that a careless reader would log.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from tests.fakes import scripts
from tests.fakes.canary_words import ANSWER
from tests.fakes.scripts import Received, Script, Step

# A count that billing refuses, by a bug planted in it, so that the edge puts the settlement aside.
QUARANTINED = 12_345


def _traceback(request: Received) -> str:
    return (
        f'Traceback (most recent call last):\n  File "/opt/model.py", line 1, in run\nValueError: {request.body.decode()} '
        f"{json.dumps(request.headers)}"
    )


def _refuses(status: int) -> Callable[[Received], Iterable[Step]]:
    def script(request: Received) -> Iterable[Step]:
        text = f"cannot read {request.body.decode()!r}; headers {request.headers}"
        return [
            scripts.json_answer({"error": {"message": text, "type": ANSWER, "code": ANSWER, "param": ANSWER}}, status)
        ]

    return script


def _fails_in_html(request: Received) -> Iterable[Step]:
    return [scripts.answer(500, f"<html>{_traceback(request)}</html>".encode(), "text/html")]


def _fails_mid_stream(request: Received) -> Iterable[Step]:
    error = {"error": {"message": _traceback(request), "type": ANSWER, "code": 500}}
    return scripts.stream(scripts.delta(request.model, content=ANSWER), error)


def _streams(*events: object, **options: bool) -> Callable[[Received], Iterable[Step]]:
    def script(request: Received) -> Iterable[Step]:
        return scripts.stream(scripts.delta(request.model, content=ANSWER), *events, **options)

    return script


def _usage(prompt: int, completion: int, cached: int | None = None) -> Callable[[Received], Iterable[Step]]:
    def script(request: Received) -> Sequence[Step]:
        return scripts.chat_stream(request.model, [ANSWER], scripts.usage(prompt, completion, cached))

    return script


NOT_UTF8 = scripts.chunk(b'data: {"choices":[{"delta":{"content":"' + ANSWER.encode() + b'\xff\xfe"}}]}\n\n')
ENDLESS = "never-ends"
# Model -> its script. Streamed and whole requests go to each.
ALL: Mapping[str, Script] = {
    "says-well": _usage(12, 5),
    "counts-oddly": _usage(12, 5, 99),
    "quarantined": _usage(QUARANTINED, 5),
    "no-usage": _streams(),
    "refuses-400": _refuses(400),
    "refuses-401": _refuses(401),
    "refuses-422": _refuses(422),
    "refuses-429": _refuses(429),
    "refuses-503": _refuses(503),
    "fails-in-html": _fails_in_html,
    "fails-mid-stream": _fails_mid_stream,
    "no-json": _streams(f'{{"choices": [{ANSWER}'),
    "no-object": _streams(f'["{ANSWER}"]'),
    "odd-choices": _streams({"choices": ANSWER}),
    "not-utf-8": _streams(NOT_UTF8),
    "resets": _streams(scripts.Reset()),
    "closes": _streams(scripts.Close()),
    "another-type": [scripts.answer(200, ANSWER.encode(), "application/x-" + ANSWER)],
    "odd-header": [f"HTTP/1.1 200 OK\r\nContent-Length: {ANSWER}\r\n\r\n".encode()],
    "no-http": [f"{ANSWER}\r\n\r\n".encode(), scripts.Close()],
    ENDLESS: _streams(scripts.Hang()),
    "crash-the-router": _usage(12, 5),
    "crash-billing": _usage(12, 5),
    "has-no-price": _usage(12, 5),
}
