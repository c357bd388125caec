"""The search for inputs that break a promise: a minute of it in the usual run, FUZZ_SECONDS for each target under `make fuzz`.

The usual run has a fixed seed and starts from the corpora, so that it differs little from one time to the next; the long one
has another each time. Finds are kept in build/fuzz/, and a failure says how to replay them.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fuzz import table
from tests.fuzz.run import can_search, report, search

AT_ONCE = 2
MINUTE_S = 60
PLANTED_S = 5
# The minute is that of all targets, the planted one included.
SECONDS_EACH = int(os.environ.get("FUZZ_SECONDS") or (MINUTE_S - PLANTED_S) // len(table.NAMES))
SEED = 0 if "FUZZ_SECONDS" in os.environ else 1

needs_atheris = pytest.mark.skipif(
    not can_search(), reason="atheris has no wheel for this Python or system: the corpora are only replayed"
)


@needs_atheris
@pytest.mark.property
@pytest.mark.timeout(SECONDS_EACH * len(table.NAMES) + 120)
def test_no_promise_is_broken() -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        searches = {name: pool.submit(search, name, SECONDS_EACH, seed=SEED) for name in table.NAMES}
    finds = [report(name, path) for name, each in searches.items() for path in each.result()[0]]
    assert finds == [], "\n\n".join(finds)


@needs_atheris
def test_the_search_finds_what_was_planted(tmp_path: Path) -> None:
    found, _ = search(table.PLANTED, PLANTED_S, seed=SEED, finds=tmp_path)
    assert [path.read_bytes() for path in found] == [b"{7"]
    said = report(table.PLANTED, found[0])
    assert "AssertionError: planted" in said
    assert f"--replay {found[0]}" in said
