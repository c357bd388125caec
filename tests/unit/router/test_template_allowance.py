"""The measured allowance covers the prompts that it was measured on, and no less would."""

from hypothesis import given
from hypothesis import strategies as st

from services.router.template_allowance import Allowance, larger, solve

tokens = st.integers(1, 5000)


def bound(found: Allowance, messages: int, other_bytes: int) -> int:
    return other_bytes + messages + found.request_tokens + messages * found.message_tokens


def test_a_template_of_known_size_is_found() -> None:
    # 20 tokens a request, 5 a message, one for each content.
    assert solve(20 + 1 * 6, 20 + 3 * 6, 0) == Allowance(20, 5)


def test_the_bytes_of_tools_pay_for_their_tokens() -> None:
    assert solve(200 + 1 * 6, 200 + 3 * 6, 150) == Allowance(50, 5)
    assert solve(100 + 1 * 6, 100 + 3 * 6, 150) == Allowance(0, 5)


@given(tokens, tokens, st.integers(0, 2000))
def test_the_bound_covers_what_was_measured(few: int, many: int, other_bytes: int) -> None:
    found = solve(few, many, other_bytes)
    assert bound(found, 1, other_bytes) >= few
    assert bound(found, 3, other_bytes) >= many


@given(st.integers(0, 2000), st.integers(0, 500))
def test_no_more_is_allowed_than_the_template_adds(request: int, message: int) -> None:
    found = solve(request + 1 * (message + 1), request + 3 * (message + 1), 0)
    assert found == Allowance(request, message)


def test_tools_that_a_template_ignores_do_not_hide_what_it_adds_itself() -> None:
    assert larger(Allowance(24, 6), Allowance(0, 7)) == Allowance(24, 7)
