"""Counts where a process spends its CPU. `benchmarks/profile.py` puts this folder on PYTHONPATH; nothing else imports it.

Python runs it at every start, so it does nothing unless CPU_SAMPLES names a folder. Then the first SIGUSR1 begins the
counting and the second one ends it and writes `<folder>/<pid>.json`; start-up and shut-down are in neither.

A timer of CPU time (SIGPROF after each millisecond used) interrupts the main thread. Signals reach no other thread in Python,
so at each one every thread's own clock is read, and what the thread has used since the last look goes to the stack that it
has now. CPU that no thread of Python used (gRPC's and the database's own threads) is counted as that.
"""

import atexit
import json
import os
import signal
import sys
import threading
import time
from types import FrameType

EVERY_S = 0.001
MAX_DEPTH, MAX_STACKS = 128, 50_000
OTHERS, MORE = "(threads that are not Python's)", "(further stacks)"


class Sampler:
    """CPU time by stack; outermost function first, as "file:function"."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._counting = self._looking = False
        self._threads: dict[int, int] = {}
        self._process_ns = 0
        self._stacks: dict[tuple[str, ...], int] = {}
        self._samples = 0

    def switch(self, _number: int, _frame: FrameType | None) -> None:
        """Begin at the first call, end at the second, then nothing."""
        if not self._counting and not self._samples:
            self._counting = True
            self._charge(None, sys._getframe())
            self._stacks.clear()
            signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
        else:
            self.end()

    def look(self, _number: int, frame: FrameType | None) -> None:
        """What has been used since the last look."""
        if self._counting and not self._looking:
            self._looking = True
            try:
                self._samples += 1
                self._charge(threading.get_ident(), frame)
            finally:
                self._looking = False

    def _charge(self, own: int | None, frame: FrameType | None) -> None:
        """Read all clocks. `frame` is what the looking thread was in before it looked."""
        used_ns = time.process_time_ns() - self._process_ns
        self._process_ns += used_ns
        clocks = {}
        # We hold the interpreter's lock, so that each of these threads lives while its clock is read.
        for thread, found in sys._current_frames().items():
            clock_ns = time.clock_gettime_ns(time.pthread_getcpuclockid(thread))
            clocks[thread] = clock_ns
            spent_ns = clock_ns - self._threads.get(thread, 0)
            if spent_ns > 0:
                self._add(_stack(frame if thread == own else found), spent_ns)
                used_ns -= spent_ns
        self._threads = clocks
        if used_ns > 0:
            self._add((OTHERS,), used_ns)

    def _add(self, stack: tuple[str, ...], spent_ns: int) -> None:
        if stack not in self._stacks and len(self._stacks) >= MAX_STACKS:
            stack = (MORE,)
        self._stacks[stack] = self._stacks.get(stack, 0) + spent_ns

    def end(self) -> None:
        """Stop and write; a second time it does nothing."""
        if not self._counting:
            return
        signal.setitimer(signal.ITIMER_PROF, 0)
        self._counting = False
        found = {
            "samples": self._samples,
            "stacks": [[list(stack), spent_ns] for stack, spent_ns in self._stacks.items()],
        }
        path = os.path.join(self._folder, f"{os.getpid()}.json")
        with open(path + ".part", "w") as file:
            json.dump(found, file)
        os.replace(path + ".part", path)


def _stack(frame: FrameType | None) -> tuple[str, ...]:
    found = []
    while frame is not None and len(found) < MAX_DEPTH:
        found.append(f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}")
        frame = frame.f_back
    return tuple(reversed(found))


def arm(folder: str) -> None:
    """Listen for the signals. System calls that they interrupt go on by themselves."""
    sampler = Sampler(folder)
    for number, handler in ((signal.SIGUSR1, sampler.switch), (signal.SIGPROF, sampler.look)):
        signal.signal(number, handler)
        signal.siginterrupt(number, False)
    atexit.register(sampler.end)


if folder := os.environ.get("CPU_SAMPLES"):
    arm(folder)
