"""What people type is read exactly, and what cannot be read is wrong usage."""

from datetime import UTC, datetime, timedelta

import pytest
import typer

from services.cli import typed

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "nanos"),
    [("10", 10_000_000_000), ("0.20", 200_000_000), ("0.000000001", 1), ("-1.5", -1_500_000_000), ("0", 0)],
)
def test_amounts_are_exact(text: str, nanos: int) -> None:
    assert typed.amount(text) == nanos


@pytest.mark.parametrize("text", ["", "abc", "1e3", "0.0000000001", "1,5", "NaN", "inf", "$1", "99999999999"])
def test_what_is_no_amount_is_wrong_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        typed.amount(text)


def test_signs_are_looked_at() -> None:
    assert typed.credit("0") == 0
    with pytest.raises(typer.BadParameter, match="negative"):
        typed.credit("-0.01")
    with pytest.raises(typer.BadParameter, match="more than zero"):
        typed.positive_amount("0")


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("250ms", 250), ("90s", 90_000), ("15m", 900_000), ("24h", 86_400_000), ("0s", 0)]
)
def test_durations(text: str, milliseconds: int) -> None:
    assert typed.duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "15", "m", "-5m", "1.5h", "1y"])
def test_what_is_no_duration_is_wrong_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a duration"):
        typed.duration_ms(text)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01T10:00:00Z", datetime(2026, 3, 1, 10, tzinfo=UTC)),
        ("2026-03-01T10:00:00+02:00", datetime(2026, 3, 1, 8, tzinfo=UTC)),
        ("30d", NOW + timedelta(days=30)),
    ],
)
def test_instants_are_utc(text: str, at: datetime) -> None:
    assert typed.instant(text, NOW) == at


def test_what_is_no_instant_is_wrong_usage() -> None:
    with pytest.raises(typer.BadParameter, match="is not a time"):
        typed.instant("tomorrow", NOW)


def test_what_is_to_come_may_not_be_past() -> None:
    assert typed.later("1s", NOW) == NOW + timedelta(seconds=1)
    for text in ("2020-01-01", "2026-01-31T12:00:00Z", "0s"):
        with pytest.raises(typer.BadParameter, match="is past"):
            typed.later(text, NOW)


def test_names_are_split_at_commas() -> None:
    assert typed.names("a/b, c ,,d") == ["a/b", "c", "d"]
    assert typed.names(None) == []
