"""Ties a service to the `speedinfer up` that started it: it drains when that process is gone, however it went.

Imported by the command's modules only.
"""

import ctypes
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1
_LOOK_EVERY_S = 1.0


def drain_without_parent(parent: int) -> None:
    """Have this process receive SIGTERM when the process `parent`, which started it, is gone.

    On Linux the kernel sends it, when the thread that started us ends: `up` starts services from its main thread.
    Elsewhere a thread looks once a second.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True, name="lifeline").start()
    if os.getppid() != parent:
        # It died before the kernel knew that we care.
        os.kill(os.getpid(), signal.SIGTERM)


def _watch(parent: int) -> None:
    looks = threading.Event()
    while os.getppid() == parent:
        looks.wait(_LOOK_EVERY_S)
    os.kill(os.getpid(), signal.SIGTERM)
