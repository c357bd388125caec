"""An event stream read by the letter of the WHATWG's rules, all at once: what the product's parser is compared with.

The gateway's own rules beside the letter: an event without data is none unless its name is `error`; a field `error` is data
and names its event so; the end of the stream ends its last event; and a line or the data of one event over the bound ends the
reading.
"""

import re

_LINE_END = re.compile(rb"\r\n|\n|\r")


class OverBound(Exception):
    """A line, or the data of an event, is longer than it may be. `events` came before."""

    def __init__(self, events: list[tuple[bytes, bytes]]) -> None:
        super().__init__("over the bound")
        self.events = events


def read(stream: bytes, max_line_bytes: int) -> list[tuple[bytes, bytes]]:
    """(name, data) of each event. OverBound as said above."""
    lines = _LINE_END.split(stream)
    events: list[tuple[bytes, bytes]] = []
    name, data = b"", []
    # The end of the stream ends its last line, and then stands for the blank one that is missing.
    for number, line in enumerate([*lines, b""]):
        if len(line) > max_line_bytes:
            raise OverBound(events)
        if number == 0 and line.startswith(b"\xef\xbb\xbf"):
            line = line[3:]
        if line == b"":
            joined = b"\n".join(data)
            if joined or name == b"error":
                events.append((name, joined))
            name, data = b"", []
            continue
        field, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if field == b"data" or line.startswith(b"error:"):
            data.append(value)
            name = name if field == b"data" else field
            if sum(len(each) + 1 for each in data) > max_line_bytes:
                raise OverBound(events)
        elif field == b"event":
            name = value
    return events
