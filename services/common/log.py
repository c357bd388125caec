"""Structured logs on standard error. Anybody may import it.

What is logged is chosen field by field at each call. No key, prompt, completion or header value is ever logged, at any
level; an error's text is logged only where it is one of ours, and never as part of a traceback.
"""

import contextlib
import logging
import sys
from typing import TextIO

import structlog

from services.common import traceback_text


class _Stderr:
    """Standard error, where a reader that has gone (`... | tee`, a supervisor that was killed) costs lines and nothing else."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


def configure(service: str, level: str) -> None:
    """Set up logging for a process. One JSON object a line, or coloured text where a person looks at a terminal."""
    number = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if sys.stderr.isatty():
        last: list[structlog.typing.Processor] = [structlog.dev.ConsoleRenderer(exception_formatter=_for_people)]
    else:
        last = [traceback_text.render, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        # A line and its end in one write: a service and its successor may share a file.
        logger_factory=structlog.WriteLoggerFactory(_Stderr()),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)
    # Libraries speak through the standard library; only what they warn about is worth a line.
    libraries = logging.StreamHandler(sys.stderr)
    libraries.setFormatter(traceback_text.Formatter("%(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[libraries])


def _for_people(file: TextIO, raised: structlog.typing.ExcInfo) -> None:
    file.write(traceback_text.text(raised[1]))
