"""The grammar of server-sent events: bytes in, events out. Pure; the OpenAI transport imports it.

Right for every split of the bytes, with CR, LF or CRLF. Comments and the fields `id` and `retry` yield nothing.
Beside the standard's letter: an event named `error` is one without data, too, since a worker that says so says enough; and
llama.cpp's old servers write their errors as a field `error`, which is an event of that name.
Invariant: what is held is at most one line and one event, each below the bound.
"""

from collections.abc import Sequence
from typing import NamedTuple

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ERROR = b"error"
_PREFIX = b"data: "
_END = b"\n\n"


class SseEvent(NamedTuple):
    """One event."""

    data: bytes
    # The field `event`; empty where there was none.
    name: bytes = b""


class LineTooLong(Exception):
    """A line, or the data of one event, is over the bound. `events` were complete before it, however the bytes were cut."""

    def __init__(self, events: Sequence[SseEvent] = ()) -> None:
        super().__init__()
        self.events = events


class SseParser:
    """The events of one stream. Not to be used again after LineTooLong."""

    def __init__(self, max_line_bytes: int) -> None:
        self._max = max_line_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._name = b""
        self._first = True
        # The last byte was a CR, which ended its line: an LF that follows belongs to it.
        self._after_cr = False

    def feed(self, data: bytes) -> list[SseEvent]:
        """Every event that `data` completes, in order; events without data are none."""
        if not data:
            return []
        if data.endswith(_END) and (whole := self._whole(data)):
            return whole
        if self._after_cr and data[0] == 0x0A:
            data = data[1:]
            self._after_cr = False
            if not data:
                return []
        if b"\r" in data:
            self._after_cr = data[-1] == 0x0D
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        else:
            self._after_cr = False
        lines = data.split(b"\n")
        rest = lines.pop()
        events: list[SseEvent] = []
        try:
            for line in lines:
                if self._line:
                    self._grow(line)
                    line = bytes(self._line)
                    self._line.clear()
                elif len(line) > self._max:
                    raise LineTooLong
                self._take(line, events)
            if rest:
                self._grow(rest)
        except LineTooLong:
            raise LineTooLong(events) from None
        return events

    def _whole(self, data: bytes) -> list[SseEvent]:
        """The events of what is nothing but whole events of one line of data each, as nearly all are; empty if it is not."""
        if self._first or self._after_cr or self._line or self._data or self._name or b"\r" in data:
            return []
        events: list[SseEvent] = []
        for line in data[: -len(_END)].split(_END):
            if not (line.startswith(_PREFIX) and len(_PREFIX) < len(line) <= self._max) or b"\n" in line:
                return []
            events.append(SseEvent(line[len(_PREFIX) :]))
        return events

    def finish(self) -> list[SseEvent]:
        """What the end of the stream completes: the last event where its blank line is missing. May raise LineTooLong, too."""
        events: list[SseEvent] = []
        if self._line:
            self._take(bytes(self._line), events)
            self._line.clear()
        self._take(b"", events)
        return events

    def _grow(self, part: bytes) -> None:
        if len(self._line) + len(part) > self._max:
            raise LineTooLong
        self._line += part

    def _take(self, line: bytes, events: list[SseEvent]) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            if self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                self._data = []
                self._data_bytes = 0
                if data or self._name == _ERROR:
                    events.append(SseEvent(data, self._name))
            elif self._name == _ERROR:
                events.append(SseEvent(b"", _ERROR))
            self._name = b""
        elif line.startswith(b"data"):
            value = line[4:]
            if value[:1] == b":":
                value = value[2:] if value[1:2] == b" " else value[1:]
            elif value:
                return  # another field, whose name only begins so
            self._add(value)
        elif line.startswith(b"event:"):
            self._name = line[6:].removeprefix(b" ")
        elif line == b"event":
            # Without a colon a field is empty.
            self._name = b""
        elif line.startswith(b"error:"):
            self._name = _ERROR
            self._add(line[6:].removeprefix(b" "))

    def _add(self, value: bytes) -> None:
        self._data_bytes += len(value) + 1
        if self._data_bytes > self._max:
            raise LineTooLong
        self._data.append(value)
