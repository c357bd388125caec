"""Promise: what a client reads of a Triton model's text is the whole text, whole characters only, less an echo of the prompt
and what follows the first stop sequence that is complete; the same however the responses cut it.
"""

from services.router.transport.triton_text import CumulativeText, DeltaText, EchoCutter, StopCutter
from tests.fuzz.choices import Choices

INSTRUMENTED = ("services.router.transport.triton_text",)
# Few, so that stop sequences and prompts often begin and seldom end.
_LETTERS = ("a", "b", "c", "é", "😀", "\ufffd")


def check(data: bytes) -> None:
    """Stop sequences and a prompt, then the text as bytes, which may be no UTF-8."""
    choices = Choices(data)
    stops = [text for text in (choices.text(_LETTERS, 4) for _ in range(choices.below(4))) if text]
    prompt = choices.text(_LETTERS, 6)
    raw = choices.flag()
    cuts = choices.take(8)
    body = choices.rest() if raw else choices.text(_LETTERS, 255).encode()
    whole = body.decode("utf-8", "replace")
    for parts in ([body], [body[at : at + 1] for at in range(len(body))], Choices(cuts).parts(body)):
        assert _deltas(parts) == whole
        assert _cumulative(parts) == whole
        _check_cutters(parts, whole, prompt, stops)


def _deltas(parts: list[bytes]) -> str:
    text = DeltaText()
    return "".join(map(text.read, parts)) + text.end()


def _cumulative(parts: list[bytes]) -> str:
    text = CumulativeText()
    seen = b""
    given = ""
    for part in parts:
        seen += part
        given += text.read(seen)
        assert seen.decode("utf-8", "replace").startswith(given), "something was given out that is not so"
    return given + text.end()


def _check_cutters(parts: list[bytes], whole: str, prompt: str, stops: list[str]) -> None:
    text, echo, cutter = DeltaText(), EchoCutter(prompt), StopCutter(stops)
    given = ""
    answered = whole.removeprefix(prompt)
    expected = first_complete_stop(answered, stops)
    for part in parts:
        given += cutter.read(echo.read(text.read(part)))
        assert expected.startswith(given), "given out and not to be taken back"
    given += cutter.read(echo.read(text.end()) + echo.end())
    if not cutter.matched:
        given += cutter.end()
    assert given == expected, (given, expected)
    assert cutter.matched == any(stop in answered for stop in stops)
    if cutter.matched:
        assert cutter.read("more") + cutter.end() == "", "text after a stop sequence"


def first_complete_stop(text: str, stops: list[str]) -> str:
    """The text up to the stop sequence that is complete first, as a model that reads letter by letter would end it."""
    for end in range(1, len(text) + 1):
        begins = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if begins:
            return text[: min(begins)]
    return text
