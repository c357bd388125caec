"""Promise: an event stream gives the same events however its bytes are cut, and they are those of the standard."""

from services.router.transport.sse_parser import LineTooLong, SseParser
from tests.fuzz.choices import Choices
from tests.fuzz.oracles import event_stream

INSTRUMENTED = ("services.router.transport.sse_parser",)


def check(data: bytes) -> None:
    """The first byte is the bound of a line, the next few are where the rest is cut."""
    choices = Choices(data)
    bound = (8, 16, 64, 1024, 65_536)[choices.below(5)]
    cuts = choices.take(choices.below(4))
    text = choices.rest()
    try:
        expected, over = event_stream.read(text, bound), False
    except event_stream.OverBound as problem:
        expected, over = problem.events, True
    for parts in ([text], [text[at : at + 1] for at in range(len(text))], Choices(cuts).parts(text)):
        seen, stopped = _read(parts, bound)
        assert stopped == over, f"over the bound: {stopped}, by the standard: {over}"
        assert seen == expected


def _read(parts: list[bytes], bound: int) -> tuple[list[tuple[bytes, bytes]], bool]:
    parser = SseParser(bound)
    seen: list[tuple[bytes, bytes]] = []
    try:
        for part in parts:
            seen += [(event.name, event.data) for event in parser.feed(part)]
        seen += [(event.name, event.data) for event in parser.finish()]
    except LineTooLong as error:
        return seen + [(event.name, event.data) for event in error.events], True
    return seen, False
