"""A service's lock is held as long as its process lives, and not a moment longer."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.cli import presence
from services.cli.failure import CommandError

HOLDER = """
import sys
from pathlib import Path
from services.cli import presence
presence.hold(Path(sys.argv[1]), "edge")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holding(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_nobody_holds_what_was_never_held(tmp_path: Path) -> None:
    assert presence.holder(tmp_path / "none", "edge") is None
    assert presence.left_behind(tmp_path, ("edge", "router", "billing")) == []
    assert presence.wait_until_gone(tmp_path, "edge", 0)


def test_a_process_that_holds_it_is_named(tmp_path: Path, holding: subprocess.Popen[bytes]) -> None:
    assert presence.holder(tmp_path, "edge") == str(holding.pid)
    assert presence.holder(tmp_path, "router") is None
    [said] = presence.left_behind(tmp_path, ("edge", "router"))
    assert said.startswith("a previous edge of this data_dir")
    assert f"is still draining (process {holding.pid})" in said


def test_it_is_let_go_with_the_process_however_that_ends(tmp_path: Path, holding: subprocess.Popen[bytes]) -> None:
    assert not presence.wait_until_gone(tmp_path, "edge", 0)
    os.kill(holding.pid, signal.SIGKILL)
    assert presence.wait_until_gone(tmp_path, "edge", 10)
    assert presence.left_behind(tmp_path, ("edge",)) == []


def test_a_folder_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match=r"data_dir .* cannot be used"):
        presence.hold(tmp_path / "file", "edge")
