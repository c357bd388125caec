"""Nothing of a request's content reaches a log."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from services.common import log, traceback_text

ROOT = Path(__file__).resolve().parents[3]
# Put together, so that no line of source in a traceback holds it.
PROMPT = "-".join(("umbra", "of", "a", "prompt"))


@pytest.fixture
def configured() -> Iterator[None]:
    before = structlog.get_config()
    structlog.reset_defaults()
    log.configure("test", "debug")
    yield
    structlog.contextvars.clear_contextvars()
    structlog.configure(**before)


def broken(prompt: str) -> None:
    try:
        json.loads(prompt)
    except ValueError:
        raise KeyError(prompt) from ExceptionGroup(prompt, [ValueError(prompt)])


@pytest.mark.usefixtures("configured")
def test_a_logged_exception_shows_neither_its_text_nor_local_variables(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        broken(PROMPT)
    except KeyError:
        structlog.get_logger("x").exception("call_failed")
    line = capsys.readouterr().err
    assert json.loads(line)["event"] == "call_failed"
    told = json.loads(line)["exception"]
    assert [each["exc_type"] for each in told] == ["KeyError", "ExceptionGroup"]
    assert told[1]["exceptions"][0][0]["exc_type"] == "ValueError"
    assert told[0]["frames"][-1]["name"] == "broken"
    assert PROMPT not in line


def test_an_exception_that_a_library_logs_or_people_see_is_told_in_the_same_way() -> None:
    try:
        broken(PROMPT)
    except KeyError as error:
        raised = (type(error), error, error.__traceback__)
    record = logging.LogRecord("asyncio", logging.ERROR, __file__, 1, "it failed", (), raised)
    for text in (traceback_text.Formatter().format(record), traceback_text.text(raised[1])):
        assert "in broken" in text
        assert "KeyError\nraised by or after\nExceptionGroup" in text
        assert PROMPT not in text


def test_what_nobody_heard_in_a_loop_is_told_without_its_text(tmp_path: Path) -> None:
    script = (
        "import asyncio, gc, os, signal, sys\n"
        "from services.common import process\n"
        "async def fail():\n"
        "    raise ValueError('-'.join(('umbra', 'prompt')))\n"
        "async def main(stop):\n"
        "    task = asyncio.get_running_loop().create_task(fail(), name='lost')\n"
        "    await asyncio.wait([task])\n"
        "    del task\n"
        "    gc.collect()\n"
        "sys.exit(process.run('test', 'info', main))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=30, check=True
    )
    line = json.loads(ended.stderr)
    assert (line["event"], line["error"], line["message"]) == (
        "unheard",
        "ValueError",
        "Task exception was never retrieved",
    )
    assert "umbra-prompt" not in ended.stderr


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
