"""How long the normal form is: never less, exact for the languages that people write, and never made where it is dear."""

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.edge import normal_form
from services.edge.normal_form import string_bytes

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
# Marks, letters that compose, letters that fall apart, and the parts of Korean syllables.
AWKWARD = st.text(
    "a e\u0301\u0323\u00e9\u1ec7\ufdfa\ufb00\uac00\u1100\u1161\u11a8\u09c7\u09be\uff9e\uff76\u0344\u3042\u3099"
)


def form(text: str) -> int:
    return max(len(text.encode()), len(unicodedata.normalize("NFKC", text).encode()))


@given(TEXT)
def test_a_string_counts_at_least_the_larger_of_its_two_forms(text: str) -> None:
    assert string_bytes(text) >= form(text)


@given(st.lists(AWKWARD, min_size=1, max_size=8), st.integers(1, 200))
def test_long_strings_do_as_well(parts: list[str], times: int) -> None:
    text = "".join(parts) * times
    assert string_bytes(text) >= form(text)
    assert normal_form._form_bytes(text) >= len(unicodedata.normalize("NFKC", text).encode())


@pytest.mark.parametrize("times", [1, 10, 1000])
@pytest.mark.parametrize(
    "text",
    [
        "Where is the caf\u00e9? \u00c0 c\u00f4t\u00e9 du mus\u00e9e.",
        "\ud55c\uad6d\uc5b4 \ubb38\uc7a5\uc785\ub2c8\ub2e4. ",
        "\u4e2d\u6587\uff0c\u53e5\u5b50\u3002",
        "\u65e5\u672c\u8a9e\u306e\u30d7\u30ed\u30b0\u30e9\u30e0\u3002",
        "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 ",
        "\u0939\u093f\u0928\u094d\u0926\u0940 ",
        "\u0440\u0443\u0441\u0441\u043a\u0438\u0439 ",
        "Ti\u1ebfng Vi\u1ec7t ",
        "e\u0301 and a\u0323 decomposed ",
        "plain \U0001f600 text",
    ],
)
def test_what_people_write_counts_exactly(text: str, times: int) -> None:
    assert string_bytes(text * times) == form(text * times)


def test_one_character_that_falls_apart_into_many_counts_as_many() -> None:
    assert string_bytes("\ufdfa") == 33
    assert string_bytes("\ufb00") == 3


@pytest.mark.parametrize(
    "text",
    [
        "\ufdfa" * 5000,
        "a" + "\u0315\u0300" * 5000,
        "\u3300" * 5000,
        ("\ufdfa" * 9 + "a") * 500,
        ("a" + "\u0315" * 5 + "\ufdfa") * 500,
    ],
    ids=["apart", "marks", "square", "apart-with-cuts", "marks-with-cuts"],
)
def test_a_form_that_is_dear_is_not_made(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = len(unicodedata.normalize("NFKC", text).encode())
    longest = 0
    normalize = unicodedata.normalize

    def watched(kind: Any, piece: str) -> str:
        nonlocal longest
        longest = max(longest, len(piece))
        return normalize(kind, piece)

    monkeypatch.setattr(unicodedata, "normalize", watched)
    monkeypatch.setattr(unicodedata, "is_normalized", None)
    assert string_bytes(text) >= expected
    assert longest <= 1


def test_no_place_for_a_cut_is_one_where_characters_compose() -> None:
    for number in range(0xA0, 0x12000):
        parts = unicodedata.decomposition(chr(number)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            assert not normal_form._SAFE.match(chr(int(parts[1], 16))), hex(number)
