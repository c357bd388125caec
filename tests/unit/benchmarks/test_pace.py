"""How streams are paced, and that the measuring worker reads what the load writes."""

import json

import pytest

from benchmarks.held import MARGIN_S, MAX_GAP_MS, MIN_GAP_MS, WINDOW_S, plan
from benchmarks.load import body_of
from benchmarks.upstream import pace_in, pace_text


@pytest.mark.parametrize("streams", [1, 10, 200, 5_000, 10_000])
def test_all_streams_live_until_the_last_one_has_been_measured(streams: int) -> None:
    found = plan(streams, open_per_s=50, events_per_s=2_000)
    assert found.life_s >= streams / 50 + WINDOW_S + MARGIN_S
    assert MIN_GAP_MS <= found.gap_ms <= MAX_GAP_MS


def test_streams_share_the_events() -> None:
    assert plan(1_000, open_per_s=50, events_per_s=2_000).gap_ms == 500


def test_a_prompt_sets_the_pace_of_its_stream() -> None:
    body = json.dumps(body_of("m", stream=True, prompt=f"Say. {pace_text(30, 1500)}")).encode()
    assert pace_in(body, 64, 0.02) == (30, 1.5)


def test_a_prompt_without_a_pace_has_the_usual_one() -> None:
    assert pace_in(json.dumps(body_of("m", stream=True)).encode(), 64, 0.02) == (64, 0.02)
