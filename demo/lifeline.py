"""Ties a demo process to the one that started it, so that a crashed `make run` leaves nothing behind.

Only the standard library; imported by the demo's scripts, never by a service.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1


def end_with_parent(number: signal.Signals = signal.SIGTERM) -> None:
    """Have this process receive signal `number` when its parent is gone.

    On Linux the kernel sends it, and it does so when the parent's *thread* that started us ends: start workers from a
    thread that lives as long as they should. Elsewhere a thread looks once a second.
    """
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # it died before the kernel knew that we care
            os.kill(os.getpid(), number)
        return
    threading.Thread(target=_watch, args=(parent, number), daemon=True, name="lifeline").start()


def _watch(parent: int, number: signal.Signals) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), number)
