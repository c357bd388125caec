"""The grammar of server-sent events, at every split of the bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.transport.sse_parser import LineTooLong, SseEvent, SseParser
from tests.fuzz.oracles import event_stream

CORPUS: list[tuple[bytes, list[bytes]]] = [
    (b"data: a\n\n", [b"a"]),
    (b"data:a\n\ndata: b\n\n", [b"a", b"b"]),
    (b"data:  two spaces\n\n", [b" two spaces"]),
    (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
    (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
    (b"data: a\r\n\ndata: b\n\r\n", [b"a", b"b"]),
    (b"data: one\ndata: two\n\n", [b"one\ntwo"]),
    (b"data: one\rdata: two\r\n\r\n", [b"one\ntwo"]),
    (b"data: one\r\ndata: two\r\n\r\n", [b"one\ntwo"]),
    (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
    (b"data: \xef\xbb\xbfa\n\n", [b"\xef\xbb\xbfa"]),
    (b": comment\n\ndata: a\n: more\nid: 7\nevent: x\nretry: 9\n\n", [b"a"]),
    (b"data\n\ndata:\n\ndata: a\n\n", [b"a"]),
    (b"data\ndata: a\n\n", [b"\na"]),
    (b"database: a\n\ndata: b\n\n", [b"b"]),
    (b" data: a\n\ndata: b\n\n", [b"b"]),
    (b"\n\n\r\n\rdata: a\n\n\n\n", [b"a"]),
    ("data: 那😀é\n\n".encode(), ["那😀é".encode()]),
    (b"data: {\"a\":1} \n\ndata: [DONE]\n\n", [b'{"a":1} ', b"[DONE]"]),
    (b"data: a\n\ndata: [DONE]\n", [b"a", b"[DONE]"]),
    (b"data: a\n\ndata: [DONE]", [b"a", b"[DONE]"]),
    (b"data: a\x00b\n\n", [b"a\x00b"]),
    (b"", []),
]  # fmt: skip


def read(parts: list[bytes], max_line_bytes: int = 1024) -> list[bytes]:
    """The data of all events of a stream that comes in these parts."""
    return [event.data for event in read_events(parts, max_line_bytes)]


def read_events(parts: list[bytes], max_line_bytes: int = 1024) -> list[SseEvent]:
    """All events."""
    parser = SseParser(max_line_bytes)
    return [event for part in parts for event in parser.feed(part)] + parser.finish()


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_an_event_has_the_name_that_it_was_given_and_no_other(step: int) -> None:
    text = (
        b"event: error\ndata: a\n\ndata: b\n\nevent:x\r\n\r\ndata: c\n\n"
        b"data: d\nevent: y\nevent: z\n\neventful: q\ndata: e\n\nevent: last\ndata: f"
    )
    events = read_events([text[start : start + step] for start in range(0, len(text), step)])
    assert events == [
        SseEvent(b"a", b"error"),
        SseEvent(b"b"),
        SseEvent(b"c"),
        SseEvent(b"d", b"z"),
        SseEvent(b"e"),
        SseEvent(b"f", b"last"),
    ]


def test_a_name_is_taken_back_by_a_field_without_a_value() -> None:
    assert read_events([b"event: error\nevent\ndata: a\n\n"]) == [SseEvent(b"a")]


@pytest.mark.parametrize(("text", "events"), CORPUS)
def test_every_way_to_cut_it_in_two(text: bytes, events: list[bytes]) -> None:
    for place in range(len(text) + 1):
        assert read([text[:place], text[place:]]) == events


@pytest.mark.parametrize(("text", "events"), CORPUS)
def test_byte_by_byte(text: bytes, events: list[bytes]) -> None:
    assert read([text[place : place + 1] for place in range(len(text))]) == events


LINE = st.sampled_from(
    [
        b"data: a",
        b"data:b",
        b"data",
        b"data:",
        b": c",
        b"event: x",
        b"event",
        b"",
        b"",
        "data: 那😀".encode(),
        b"id",
        b"datax: 1",
    ]
)
END = st.sampled_from([b"\n", b"\r", b"\r\n"])


@given(st.lists(st.tuples(LINE, END), max_size=20), st.data())
def test_no_split_changes_anything(lines: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    text = b"".join(line + end for line, end in lines)
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    parts = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    assert read(parts) == read([text])
    assert read([text[place : place + 1] for place in range(len(text))]) == read([text])


@given(st.lists(st.tuples(LINE, END), max_size=20), st.sampled_from([8, 12, 1024]), st.integers(1, 40))
def test_it_agrees_with_a_plain_reading_of_the_standard(
    lines: list[tuple[bytes, bytes]], max_line_bytes: int, size: int
) -> None:
    text = b"".join(line + end for line, end in lines)
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    try:
        expected = event_stream.read(text, max_line_bytes)
    except event_stream.OverBound:
        with pytest.raises(LineTooLong):
            read(parts, max_line_bytes)
        return
    assert [(event.name, event.data) for event in read_events(parts, max_line_bytes)] == expected


@given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_are_read_or_over_the_bound(text: bytes, size: int) -> None:
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    assert read(parts) == read([text])


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_line_is_bounded(step: int) -> None:
    text = b"data: " + b"x" * 100
    parts = [text[start : start + step] for start in range(0, len(text), step)]
    with pytest.raises(LineTooLong):
        read(parts, max_line_bytes=64)
    assert read([*parts, b"\n\n"], max_line_bytes=106) == [b"x" * 100]


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_what_came_before_the_bound_is_given_out(step: int) -> None:
    text = b"data: a\n\ndata: " + b"x" * 100 + b"\n\ndata: b\n\n"
    parts = [text[start : start + step] for start in range(0, len(text), step)]
    parser, seen = SseParser(64), []

    def feed() -> None:
        for part in parts:
            seen.extend(parser.feed(part))

    with pytest.raises(LineTooLong) as error:
        feed()
    assert [*seen, *error.value.events] == [SseEvent(b"a")]


def test_an_event_of_many_short_lines_is_bounded() -> None:
    with pytest.raises(LineTooLong):
        read([b"data: x\n"] * 100, max_line_bytes=64)


def test_the_end_of_the_stream_completes_no_event_over_the_bound() -> None:
    parser = SseParser(64)
    assert parser.feed(b"data: " + b"x" * 40 + b"\ndata: " + b"y" * 40) == []
    with pytest.raises(LineTooLong):
        parser.finish()


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (b"error: {}\n\n", b"{}"),
        (b"error:\r\n\r\n", b""),
        (b"event: error\n\n", b""),
        (b"event: error\ndata:\n\n", b""),
        (b"event: error", b""),
        (b"errors: 1\n\n", None),
        (b"error\n\n", None),
        (b"event: x\n\n", None),
    ],
)
def test_an_error_is_one_in_its_own_field_and_without_data(text: bytes, data: bytes | None) -> None:
    expected = [] if data is None else [(data, b"error")]
    assert [(event.data, event.name) for event in read_events([text])] == expected
    assert [(found, name) for name, found in event_stream.read(text, 1024)] == expected
