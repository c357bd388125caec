"""The life of a service process: start, wait for a signal, drain, exit. Composition roots import it.

SIGTERM and SIGINT ask for a drain; a second one ends the process at once.
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
import uvloop

from services.common import log, open_files
from services.common.errors import ConfigurationError

_log = structlog.get_logger(__name__)


def run(service: str, log_level: str, main: Callable[[asyncio.Event], Awaitable[None]]) -> int:
    """Run `main` on uvloop; it gets an event that is set when the process is asked to stop. Answers the exit code."""
    log.configure(service, log_level)
    # Ledger, registry, outbox: nothing that a service writes is for other users of the machine.
    os.umask(0o077)
    open_files.allow_many()
    # What was imported lives as long as the process. To look through it for garbage takes up to a tenth of a second, in which
    # nobody is served; what `main` makes is a thirtieth of it, and is looked through as ever.
    gc.freeze()

    async def guarded() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        # asyncio's own handler would write the exception's text, in which a prompt may stand.
        loop.set_exception_handler(_unheard)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _ask, stop, number)
        await main(stop)

    try:
        uvloop.run(guarded())
    except (ConfigurationError, OSError) as error:
        # What an operator can put right gets a sentence, not a traceback.
        print(f"speedinfer {service}: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _unheard(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    # The message is asyncio's or uvloop's own; what else there is (tasks, handles, transports) shows the exception again.
    _log.error("unheard", message=context.get("message"), error=type(error).__name__ if error else None, exc_info=error)


def _ask(stop: asyncio.Event, number: int) -> None:
    if stop.is_set():
        _log.warning("second_signal_stops_at_once", signal=signal.Signals(number).name)
        # The conventional status of a process that a signal ended.
        raise SystemExit(128 + number)
    # First: whatever becomes of the line, the drain begins.
    stop.set()
    _log.info("draining", signal=signal.Signals(number).name)
