"""Ties a service to the `speedinfer up` that started it: it drains when that process is gone, however it went.

`up` ends the edge first, then the router, then billing, because a running stream needs all three to its end. Services that
are left alone keep that order by themselves. Imported by the command's modules only.
"""

import os
import signal
import threading
from collections.abc import Callable

_LOOK_EVERY_S = 1.0


def drain_without_parent(parent: int, wait_first: Callable[[], object] | None = None) -> None:
    """Have this process receive one SIGTERM when the process `parent`, which started it, is gone and `wait_first` returned.

    A thread looks once a second. Linux could send the signal itself (PR_SET_PDEATHSIG), but does so for each thread of the
    parent that ends while it has us for its child: from a parent that is killed two may come, and the second means "at once".
    """
    threading.Thread(target=_watch, args=(parent, wait_first), daemon=True, name="lifeline").start()


def _watch(parent: int, wait_first: Callable[[], object] | None) -> None:
    looks = threading.Event()
    while os.getppid() == parent:
        looks.wait(_LOOK_EVERY_S)
    if wait_first is not None:
        wait_first()
    os.kill(os.getpid(), signal.SIGTERM)
