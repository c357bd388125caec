"""Free ports for processes of tests. Below the range from which the system takes ports for outgoing connections, so that
none is lost between our look and the process's bind; each is handed out once in a run, and runs at the same
time begin far apart."""

import itertools
import os
import socket

FIRST, LAST = 12_000, 31_999
# The golden section of the range: however many processes with neighbouring numbers there are, none begins near another.
_APART = 12_361
_next = itertools.count(os.getpid() * _APART)


def free_port(neighbours: int = 0) -> int:
    """A port that nobody listens on, with `neighbours` free ones right after it."""
    for _ in range(LAST - FIRST):
        port = FIRST + next(_next) % (LAST - FIRST - neighbours)
        if all(_is_free(port + offset) for offset in range(neighbours + 1)):
            for _ in range(neighbours):
                next(_next)
            return port
    raise RuntimeError("no free port")


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
