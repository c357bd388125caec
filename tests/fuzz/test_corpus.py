"""Every input of the corpora, and every one that was ever a find: the promise holds."""

import pytest

from tests.fuzz import table
from tests.fuzz.minimise import failure_of, minimised
from tests.fuzz.run import report

MAX_CORPUS_BYTES = 1_000_000
MAX_FILES = 600


@pytest.mark.parametrize("name", table.NAMES)
def test_replay(name: str) -> None:
    check = table.check_of(name)
    seeds = table.seeds(name)
    assert seeds, "a target without a corpus"
    broken = [path for path in seeds if failure_of(check, path.read_bytes()) is not None]
    assert broken == [], "\n\n".join(report(name, path) for path in broken)


def test_the_corpora_are_small_and_each_has_a_target() -> None:
    assert sorted(path.name for path in table.CORPUS.iterdir()) == sorted((*table.NAMES, table.PLANTED))
    sizes = [path.stat().st_size for path in table.CORPUS.rglob("*") if path.is_file()]
    assert sum(sizes) < MAX_CORPUS_BYTES
    assert len(sizes) < MAX_FILES


def test_a_find_is_made_smaller_and_stays_one() -> None:
    check = table.check_of(table.PLANTED)
    data = b"a long beginning {" + b"x" * 100 + b"7} and an end"
    assert failure_of(check, data) is not None
    assert minimised(check, data) == b"{7"
    assert minimised(check, b"nothing wrong") == b"nothing wrong"
