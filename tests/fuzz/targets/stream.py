"""Promise: the bytes of a worker's stream give the same events, and the same failure, however they are cut; nothing but
WorkerFailure is raised; and the last word is the standard's: what the events of the stream are, one by one, is what is read.
"""

from speedinfer.common.v1.operation_pb2 import OPERATION_CHAT_COMPLETION

from services.router.safe_text import PLAIN
from services.router.transport.openai_frames import DONE, FrameReader
from services.router.transport.openai_http import _StreamReader
from services.router.transport.port import Activity, Dispatch, Done, Event, WorkerFailure
from tests.fuzz.choices import Choices
from tests.fuzz.oracles import event_stream

INSTRUMENTED = ("services.router.transport.openai_http", "services.router.transport.sse_parser")
MODEL = "acme/model-1"
DISPATCH = Dispatch("r", 1, OPERATION_CHAT_COMPLETION, MODEL, True, (), None)

# What was read, and how it ended: empty for well.
Reading = tuple[list[Event], str]


def check(data: bytes) -> None:
    """The first byte is the bound of a line, the next few are where the rest is cut."""
    choices = Choices(data)
    bound = (128, 1024, 65_536)[choices.below(3)]
    cuts = choices.take(choices.below(8))
    text = choices.rest()
    by_byte = _read([text[at : at + 1] for at in range(len(text))], bound)
    in_parts = _read(Choices(cuts).parts(text), bound)
    assert in_parts == by_byte
    assert _read([text], bound) == by_byte
    expected = _by_the_standard(text, bound)
    if expected is not None:
        assert by_byte == expected


def _read(parts: list[bytes], bound: int) -> Reading:
    reader = _StreamReader(DISPATCH, bound, PLAIN)
    events: list[Event] = []
    try:
        for part in parts:
            # One by one, since the reading may break off behind some.
            for event in reader.feed(part):
                if not isinstance(event, Activity):
                    events.append(event)  # noqa: PERF401
        for event in reader.finish():
            events.append(event)  # noqa: PERF402
    except WorkerFailure as failure:
        return events, failure.message
    return events, ""


def _by_the_standard(text: bytes, bound: int) -> Reading | None:
    """The same by the plain parser; None where the end of the stream, or the bound, cut it off."""
    try:
        listed = event_stream.read(text, bound)
    except event_stream.OverBound:
        return None
    if not text.endswith((b"\n\n", b"\r\r", b"\r\n\r\n")):
        return None
    reader = FrameReader(MODEL, OPERATION_CHAT_COMPLETION)
    events: list[Event] = []
    try:
        for name, data in listed:
            if name.strip().lower() == b"error":
                raise reader.read_error(data)
            events.append(Done() if data.strip() == DONE else reader.read(data))
    except WorkerFailure as failure:
        return events, failure.message
    return events, ""
