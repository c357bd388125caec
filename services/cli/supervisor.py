"""Child processes in an order: they start together, are waited for in order, and end in the reverse order.

A child that dies unasked is started again, with a back-off that grows while it keeps dying. Knows nothing of what the
children are. Imported by `up` only.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from services.cli.readiness import Look
from services.common.errors import ConfigurationError
from services.common.tasks import TaskSet

FIRST_BACKOFF_S = 0.25
MAX_BACKOFF_S = 10.0
# A child that ran this long had started well; the next death begins at the first back-off again.
STEADY_AFTER_S = 30.0
READY_TIMEOUT_S = 60.0
LOOK_EVERY_S = 0.05
# Beyond a service's own drain: its process has to end, too.
EXIT_MARGIN_S = 15.0


@dataclass(frozen=True, slots=True)
class Program:
    """One child: what to run, how to see that it is ready, and how long it may take to end."""

    name: str
    command: Sequence[str]
    look: Callable[[], Look]
    end_within_s: float
    # Descriptors that it inherits.
    pass_fds: Sequence[int] = ()


class Supervisor:
    """Runs programs. `say` gets a sentence whenever something happens that an operator should know."""

    def __init__(self, programs: Sequence[Program], say: Callable[[str], None]) -> None:
        self._programs = programs
        self._say = say
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._watchers = TaskSet()
        self._stopping = asyncio.Event()

    @property
    def pids(self) -> dict[str, int]:
        """The process ids by name."""
        return {name: process.pid for name, process in self._processes.items()}

    async def start(self, stop: asyncio.Event) -> bool:
        """Start all and wait for each; False if `stop` was set meanwhile. ConfigurationError if one does not come up."""
        # Together, because most of a start is reading code; whoever needs another waits for it by itself.
        processes = [await self._spawn(program) for program in self._programs]
        for program, process in zip(self._programs, processes, strict=True):
            if not await self._wait_ready(program, process, stop):
                if stop.is_set():
                    return False
                ended = process.returncode is not None
                raise ConfigurationError(
                    f"{program.name} "
                    + (
                        f"ended with status {process.returncode}"
                        if ended
                        else f"was not ready after {READY_TIMEOUT_S:.0f} s"
                    )
                    + "; what it said stands above"
                )
            self._watchers.spawn(self._watch(program, process), f"watch {program.name}")
        return True

    def let_go(self, number: signal.Signals) -> None:
        """Send all a signal by which each ends in its own time; none is started again."""
        self._stopping.set()
        for process in self._processes.values():
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)

    async def ended(self) -> None:
        """Wait until no process runs; they must have been let go."""
        for process in self._processes.values():
            await process.wait()

    async def stop(self, *, together: bool = False) -> bool:
        """End all with SIGTERM, the last first or all at once, each in its time; False if one had to be killed or failed."""
        self._stopping.set()
        # One that had died by itself and was not started again yet is no failure of this.
        running = [
            (program, process)
            for program in reversed(self._programs)
            if (process := self._processes.get(program.name)) is not None and process.returncode is None
        ]
        if together:
            self.let_go(signal.SIGTERM)
        well = True
        for program, process in running:
            if not together:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(program.end_within_s):
                    well = await process.wait() == 0 and well
            except TimeoutError:
                self._say(f"{program.name} did not end within {program.end_within_s:.0f} s; killing it")
                process.kill()
                await process.wait()
                well = False
        await self._watchers.cancel()
        return well

    async def _spawn(self, program: Program) -> asyncio.subprocess.Process:
        # A session of its own: Ctrl-C in a terminal reaches us alone, and we end the children in their order.
        process = await asyncio.create_subprocess_exec(
            *program.command, stdin=asyncio.subprocess.DEVNULL, start_new_session=True, pass_fds=program.pass_fds
        )
        self._processes[program.name] = process
        return process

    async def _wait_ready(self, program: Program, process: asyncio.subprocess.Process, stop: asyncio.Event) -> bool:
        until = time.monotonic() + READY_TIMEOUT_S
        while process.returncode is None and not stop.is_set() and time.monotonic() < until:
            if (await asyncio.to_thread(program.look)).ready:
                return True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await stop.wait()
        return False

    async def _watch(self, program: Program, process: asyncio.subprocess.Process) -> None:
        backoff_s = FIRST_BACKOFF_S
        while True:
            began = time.monotonic()
            status = await process.wait()
            if self._stopping.is_set():
                return
            backoff_s = FIRST_BACKOFF_S if time.monotonic() - began > STEADY_AFTER_S else backoff_s
            self._say(f"{program.name} {_how(status)}; starting it again in {backoff_s:g} s")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff_s):
                    await self._stopping.wait()
                    return
            backoff_s = min(backoff_s * 2, MAX_BACKOFF_S)
            process = await self._spawn(program)
            if await self._wait_ready(program, process, self._stopping):
                self._say(f"{program.name} is back")


def _how(status: int) -> str:
    if status >= 0:
        return f"ended unasked with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
