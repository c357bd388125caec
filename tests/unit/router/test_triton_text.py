"""Text in pieces: whole characters, stop sequences, echoes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.transport.port import WorkerFailure
from services.router.transport.triton_text import CumulativeText, DeltaText, EchoCutter, EosCutter, StopCutter


@given(st.text(), st.data())
def test_deltas_cut_anywhere_give_the_same_text(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    reader = DeltaText()
    pieces = [reader.read(raw[a:b]) for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert "".join(pieces) + reader.end() == text


def test_half_a_character_waits_for_the_other_half() -> None:
    reader = DeltaText()
    assert [reader.read(b"a\xe9"), reader.read(b"\x82"), reader.read(b"\xa3b"), reader.end()] == [
        "a",
        "",
        "\u90a3b",
        "",
    ]
    reader = DeltaText()
    assert [reader.read(b"a\xe9"), reader.end()] == ["a", "\ufffd"]


@pytest.mark.parametrize(
    ("responses", "deltas"),
    [
        (["He", "Hello", "Hello wor", "Hello world"], ["He", "llo", " wor", "ld", ""]),
        # A tokenizer writes U+FFFD for a character that is not complete yet.
        (["a\ufffd", "a\ufffd\ufffd", "a\U0001f600"], ["a", "", "\U0001f600", ""]),
        (["a\ufffd"], ["a", "\ufffd"]),
        (["same", "same", "same!"], ["same", "", "!", ""]),
        # What was given out stays; the text goes on after it, and loses nothing where only white space changed.
        (["Hello ", "Hello, world"], ["Hello ", ", world", ""]),
        (["do n", "don't"], ["do n", "'t", ""]),
        (["  ", "x", "xy z"], ["  ", "", "xy z", ""]),
        (["Hello wor", "Hello, w", "Hello, world"], ["Hello wor", "", "ld", ""]),
        # A text that became shorter is waited for; an empty one is no text.
        (["Hello wor", "Hello", "", "Hello world"], ["Hello wor", "", "", "ld", ""]),
        # One that was rewritten goes on where the end of what was given out stands in it.
        (["Hello world", "Hello, world!", "Hello, world!?"], ["Hello world", "!", "?", ""]),
        (["a\ufffd", ""], ["a", "", "\ufffd"]),
    ],
)
def test_cumulative_text_into_deltas(responses: list[str], deltas: list[str]) -> None:
    reader = CumulativeText()
    assert [*(reader.read(r.encode()) for r in responses), reader.end()] == deltas


@pytest.mark.parametrize(
    "responses", [["Hello", " world"], ["longer", "short"], ["Hello", "Here we go"], ["The first", "There is another"]]
)
def test_a_text_so_far_that_does_not_begin_as_it_began_is_refused(responses: list[str]) -> None:
    reader = CumulativeText()
    reader.read(responses[0].encode())
    with pytest.raises(WorkerFailure, match="cannot be read") as caught:
        reader.read(responses[1].encode())
    assert "text_mode" in caught.value.detail


@pytest.mark.parametrize(
    ("stops", "pieces", "seen", "matched"),
    [
        (["END"], ["one E", "N", "D two"], ["one ", "", "", ""], True),
        (["END"], ["one E", "Ngland"], ["one ", "ENgland", ""], False),
        (["END"], ["the EN"], ["the ", "EN"], False),
        (["\n\n"], ["a\n", "b\n", "\nc"], ["a", "\nb", "", ""], True),
        (["xy", "y"], ["aaxy"], ["aa", ""], True),
        # The first that is complete, not the first that begins, in one piece or in several.
        (["abcd", "c"], ["xabcd"], ["xab", ""], True),
        (["abcd", "c"], ["xa", "b", "cd"], ["x", "", "ab", ""], True),
        (["ab", "abc"], ["xabc"], ["x", ""], True),
        (["\u90a3\u3042"], ["x\u90a3", "\u3042y"], ["x", "", ""], True),
        (["aab"], ["aa", "a", "b"], ["", "a", "", ""], True),
        ([], ["as it is"], ["as it is", ""], False),
        (["stop"], ["stop", " more"], ["", "", ""], True),
    ],
)
def test_stop_sequences(stops: list[str], pieces: list[str], seen: list[str], matched: bool) -> None:
    cutter = StopCutter(stops)
    out = [cutter.read(piece) for piece in pieces]
    assert [*out, "" if cutter.matched else cutter.end()] == seen
    assert cutter.matched is matched


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_a_stop_is_never_given_out_however_the_text_comes(text: str, stops: list[str]) -> None:
    cutter = StopCutter(stops)
    seen = "".join(cutter.read(character) for character in text)
    seen += "" if cutter.matched else cutter.end()
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    assert cutter.matched is bool(ends)
    assert text.startswith(seen)
    assert not any(stop in seen for stop in stops)
    if not ends:
        assert seen == text
    at_once = StopCutter(stops)
    assert at_once.read(text) + at_once.end() == seen


@given(st.text("<e>", max_size=12), st.text("<e>", min_size=1, max_size=4), st.data())
def test_the_eos_token_is_cut_at_the_end_once_however_the_text_comes(
    text: str, token: str, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    cutter = EosCutter(token)
    seen = "".join(cutter.read(text[a:b]) for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)) + cutter.end()
    assert seen == text.removesuffix(token)


def test_without_an_eos_token_nothing_is_cut_or_held() -> None:
    cutter = EosCutter("")
    assert [cutter.read("a</s>"), cutter.end()] == ["a</s>", ""]


@pytest.mark.parametrize(
    ("pieces", "seen"),
    [
        (["the prompt and more"], [" and more", ""]),
        (["the ", "prompt", " and"], ["", "", " and", ""]),
        (["the other"], ["the other", ""]),
        (["the "], ["", "the "]),
        (["the prompt", "the prompt"], ["", "the prompt", ""]),
    ],
)
def test_an_exact_copy_of_the_prompt_is_left_out(pieces: list[str], seen: list[str]) -> None:
    cutter = EchoCutter("the prompt")
    assert [*(cutter.read(piece) for piece in pieces), cutter.end()] == seen


def test_a_rewritten_text_goes_on_where_it_stood() -> None:
    text = CumulativeText()
    assert text.read(b"aaaa bbbb") == "aaaa bbbb"
    assert text.read(b"aaaa  bbbb bbbb") == " bbbb"
