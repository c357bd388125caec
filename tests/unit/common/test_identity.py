"""Ids and keys: their shape, and that a wrong one is known without asking anybody."""

from hypothesis import given
from hypothesis import strategies as st

from services.common import apikey
from services.common.ids import is_uuid7, uuid7, uuid7_ms


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_an_id_tells_when_it_was_made(now_ms: int, randomness: bytes) -> None:
    made = uuid7(now_ms, randomness)
    assert is_uuid7(made)
    assert uuid7_ms(made) == now_ms


def test_ids_sort_by_age() -> None:
    assert uuid7(1, b"\xff" * 10) < uuid7(2, b"\x00" * 10)


def test_other_ids_are_told_apart() -> None:
    good = uuid7()
    for wrong in ("", "x", good.upper(), good.replace("-", ""), f"{{{good}}}", "5e1c2f3a-0000-4000-8000-000000000000"):
        assert not is_uuid7(wrong), wrong


def test_a_made_key_is_read_back() -> None:
    text, key = apikey.make_key()
    assert text.startswith("sk-si-")
    assert apikey.parse_key(text) == key
    assert key.key_id.removeprefix("key_") in text


def test_any_single_wrong_character_is_caught_by_the_checksum() -> None:
    text, _ = apikey.make_key()
    start = len(apikey.PREFIX)
    for place in range(start, len(text)):
        wrong = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
        assert apikey.parse_key(wrong) is None, place


def test_what_is_no_key_is_refused() -> None:
    text, _ = apikey.make_key()
    for wrong in (
        "",
        "sk-test",
        text[:-1],
        text + "0",
        text.replace("sk-si-", "sk-"),
        text + "\n",
        "sk-si-" + "é" * 50,
    ):
        assert apikey.parse_key(wrong) is None, wrong
