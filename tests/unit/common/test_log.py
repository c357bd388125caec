"""Nothing of a request's content reaches a log."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from services.common import log

ROOT = Path(__file__).resolve().parents[3]


def test_a_logged_exception_shows_no_local_variables(capsys: pytest.CaptureFixture[str]) -> None:
    before = structlog.get_config()
    structlog.reset_defaults()
    try:
        log.configure("test", "debug")
        prompt = "canary-of-a-prompt"
        try:
            len(prompt) / 0
        except ZeroDivisionError:
            structlog.get_logger("x").exception("call_failed")
        line = capsys.readouterr().err
        assert json.loads(line)["event"] == "call_failed"
        assert "ZeroDivisionError" in line
        assert "canary" not in line
    finally:
        structlog.contextvars.clear_contextvars()
        structlog.configure(**before)


def test_a_reader_that_has_gone_ends_no_service(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from services.common import process\n"
        "async def main(stop):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    await stop.wait()\n"
        "    open(sys.argv[1], 'w').write('drained')\n"
        "sys.exit(process.run('test', 'info', main))\n"
    )
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "told")], stderr=write, cwd=ROOT, timeout=30, check=False
    )
    os.close(write)
    assert (tmp_path / "told").read_text() == "drained"
    assert ended.returncode == 0
