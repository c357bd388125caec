"""The words in the body of a refusal, whole or cut."""

import json

import pytest

from services.router.transport.triton_error_body import error_text

WORDS = 'a "quoted"\n \\ \u00e9 \U0001f600 text'


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error":"it broke"}', "it broke"),
        (b' data: {"error":"it broke"}\n\n', "it broke"),
        (b'{"error":"half \xff of \x01 it"}', "half \ufffd of \x01 it"),
        (b'{"error":"\\ud83d one half"', "? one half"),
        (b'{"error":"all of it", "more": [', "all of it"),
        (b'{"error":"a word cu', "a word"),
        (b'data: {"error":"a word cu', "a word"),
        (b'{"error":"an escape \\u00', "an escape"),
        (b'{"error":"an escape \\', "an escape"),
        (b'{"error":"', ""),
        (b'{"error":7', ""),
        (b"[1", ""),
        (b"<html>no</html>", ""),
        (b"", ""),
        (b"[]", ""),
    ],
)
def test_bodies(body: bytes, text: str) -> None:
    assert error_text(body) == text


@pytest.mark.parametrize("ascii_only", [True, False])
def test_of_a_body_cut_anywhere_the_whole_words_are_told(ascii_only: bool) -> None:
    body = json.dumps({"error": WORDS}, ensure_ascii=ascii_only, separators=(",", ":")).encode()
    for size in range(len(body) - 1):
        told = error_text(body[:size])
        assert WORDS.startswith(told) or " " not in told, (size, told)
    assert error_text(body[:-1]) == WORDS


def test_a_word_without_an_end_is_told() -> None:
    assert error_text(b'{"error":"got ' + b"x" * 70_000) == "got " + "x" * 70_000
