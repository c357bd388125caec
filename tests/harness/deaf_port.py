"""A port that listens and takes no more connections: whoever connects waits for ever, as with a host that drops packets."""

import select
import socket
from types import TracebackType

FILLED_AFTER_S = 0.05
MOST = 16


class DeafPort:
    """`with DeafPort() as deaf:`; `deaf.port` is what nobody gets through to."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []
        self.port = 0

    def __enter__(self) -> "DeafPort":
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        self.port = listening.getsockname()[1]
        self._sockets.append(listening)
        fill(self.port, self._sockets)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._sockets:
            each.close()


def fill(port: int, sockets: list[socket.socket]) -> None:
    """Connect until the queue of a listening socket that accepts nothing is full; the connections go into `sockets`."""
    for _ in range(MOST):
        own = socket.socket()
        own.setblocking(False)
        own.connect_ex(("127.0.0.1", port))
        sockets.append(own)
        if not select.select([], [own], [], FILLED_AFTER_S)[1]:
            return
    raise AssertionError("the queue of a socket that accepts nothing is never full")
