"""Nothing of a request's content reaches a log."""

import json

import pytest
import structlog

from services.common import log


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
