"""How `make test` runs the suite in two halves: every test is in one of them, and a failure in either is one of the whole."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests import suite
from tests.suite import HALVES, ROOT

GOOD = "def test_good():\n    assert True\n"
BAD = "def test_bad():\n    told = 'what was wrong'\n    assert told == ''\n"
KILLED = "import os, signal\ndef test_killed():\n    os.kill(os.getpid(), signal.SIGKILL)\n"
ARGUMENTS = ("-q", "-p", "no:cacheprovider")


def test_every_folder_of_tests_is_in_one_half() -> None:
    listed = Counter(path for half in HALVES for path in half)
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob("*") if any(path.rglob("test_*.py"))}
    assert listed == dict.fromkeys(there, 1)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("one", "other", "code", "last"),
    [
        (GOOD, GOOD, 0, "2 passed"),
        (BAD, GOOD + "\n" + GOOD.replace("good", "better"), 1, "1 failed, 2 passed"),
        (GOOD, BAD, 1, "1 failed, 1 passed"),
        (GOOD, "", 0, "1 passed"),
        ("", GOOD, 0, "1 passed"),
        ("", "", 5, "no tests ran"),
        (GOOD, KILLED, 1, "1 passed, 1 error"),
        (GOOD, "import nothing_of_that_name\n", 2, "1 passed, 1 error"),
    ],
    ids=["good", "first-bad", "second-bad", "second-empty", "first-empty", "both-empty", "killed", "not-collected"],
)
def test_both_halves_count(
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    one: str,
    other: str,
    code: int,
    last: str,
) -> None:
    # What is tested needs none of them, and they take seconds.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "test_one.py").write_text(one)
    (tmp_path / "test_other.py").write_text(other)
    assert suite.run((["test_one.py"], ["test_other.py"]), ARGUMENTS, tmp_path) == code
    said = capfdbinary.readouterr().out.decode()
    assert re.fullmatch(rf"{last} in \d+\.\d\ds", said.splitlines()[-1]), said
    # Whole, from whichever half.
    assert ("assert 'what was wrong' == ''" in said) == (BAD in (one, other))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], False),
        (["-x", "-k", "triton"], False),
        # An expression, though there is a folder of that name.
        (["-k", "tests"], False),
        (["-x", "tests/unit"], True),
        (["tests/unit/test_suite.py::test_both_halves_count"], True),
        (["--durations=10", "-m", "real"], False),
    ],
)
def test_arguments_that_name_what_to_run(arguments: list[str], named: bool) -> None:
    assert suite.names_paths(arguments) is named


def test_outcomes_are_read_from_the_last_line_alone() -> None:
    said = "5 failed, in a test's own words\n= 1 failed, 20 passed, 3 deselected, 1 warning, 2 errors in 61.00s (0:01:01) =\n"
    assert suite.outcomes(said) == {"failed": 1, "passed": 20, "deselected": 3, "warning": 1, "error": 2}
    assert suite.outcomes("") == {}
    told = suite.summary(Counter(failed=1, passed=20, error=2), 1, 3_725.5)
    assert told == "1 failed, 20 passed, 2 errors in 3725.50s (1:02:05)"
