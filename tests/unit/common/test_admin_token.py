"""The operators' token: one per data_dir, readable by its owner alone."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from services.common.admin_token import FILE_NAME, is_bearer, load, load_or_make
from services.common.errors import ConfigurationError


def test_many_starts_at_once_agree_on_one_token(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(lambda _: load_or_make(None, tmp_path), range(32)))
    assert len(tokens) == 1
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_a_configured_token_wins_and_is_not_stored(tmp_path: Path) -> None:
    assert load_or_make("mine", tmp_path) == "mine"
    assert list(tmp_path.iterdir()) == []


def test_a_token_open_to_others_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_text("token\n")
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        load(path)


def test_an_empty_token_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.touch(mode=0o600)
    with pytest.raises(ConfigurationError, match="empty"):
        load(path)


@pytest.mark.parametrize(
    ("header", "good"),
    [
        ("Bearer abc", True),
        ("bearer  abc", True),
        ("Basic abc", False),
        ("abc", False),
        ("Bearer abcd", False),
        ("Bearer ", False),
        ("Bearer \xe9", False),
        ("Bearer \udcff", False),
        ("\udcff abc", False),
        (None, False),
    ],
)
def test_only_the_bearer_of_the_token_passes(header: str | None, good: bool) -> None:
    assert is_bearer(header, "abc") is good
