"""When a router is silent: it was asked, and said nothing for long enough while the edge itself ran."""

import pytest

from services.edge.silence import Silence, Verdict

NOTHING, ASK, SILENT, BACK = Verdict
HEARD = "heard"


def looks(first: int, last: int) -> list[int]:
    """A look each tenth of a second, from one to another."""
    return list(range(first, last + 1))


# What happens (a look at a tenth of a second, or something heard), and what looks came to: the tenth, and the verdict.
TABLE: dict[str, tuple[list[int | str], dict[int, Verdict]]] = {
    "nothing is asked while it is heard": ([1, 2, HEARD, 3, 4, 5, HEARD, 6, 7, 8, 9, 10], {}),
    "asked after half a second": (looks(1, 8), {5: ASK}),
    "silent half a second after it was asked, told once": (looks(1, 30), {5: ASK, 10: SILENT}),
    "an answer begins it all anew": ([*looks(1, 9), HEARD, *looks(10, 19)], {5: ASK, 15: ASK}),
    "an answer in the last moment counts": ([*looks(1, 9), HEARD, *looks(10, 20)], {5: ASK, 15: ASK, 20: SILENT}),
    "heard again": ([*looks(1, 14), HEARD, *looks(15, 26)], {5: ASK, 10: SILENT, 15: BACK, 20: ASK, 25: SILENT}),
    "we stood still before we asked": ([*looks(1, 3), *looks(60, 69)], {65: ASK}),
    "we stood still after we asked": ([*looks(1, 6), *looks(60, 66)], {5: ASK, 65: SILENT}),
    "and what was said meanwhile is read then": ([*looks(1, 9), 60, 61, HEARD, *looks(62, 66)], {5: ASK}),
    "we stood still while it was silent": ([*looks(1, 12), *looks(60, 80)], {5: ASK, 10: SILENT}),
    "a look that comes a little late is one": ([1, 2, 4, 6, 8, 10, 12], {6: ASK, 12: SILENT}),
}


@pytest.mark.parametrize(("events", "expected"), TABLE.values(), ids=TABLE)
def test_what_looks_come_to(events: list[int | str], expected: dict[int, Verdict]) -> None:
    silence, found = Silence(0.0), {}
    for event in events:
        if isinstance(event, str):
            silence.heard()
        elif (verdict := silence.look(event / 10)) is not NOTHING:
            found[event] = verdict
    assert found == expected


def test_who_is_heard_is_not_silent_even_before_the_next_look() -> None:
    silence = Silence(0.0)
    for tenth in looks(1, 10):
        silence.look(tenth / 10)
    assert silence.is_silent
    silence.heard()
    assert not silence.is_silent
    assert silence.look(1.1) is BACK
    assert not silence.is_silent
