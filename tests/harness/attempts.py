"""Every address that Python's sockets were told to connect to, whether anybody was there or not."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_noting: list[list[Any]] = []
_hooked: list[bool] = []


@contextmanager
def noted() -> Iterator[list[Any]]:
    """The addresses of the attempts in this block. gRPC's core has sockets of its own, which are not seen."""
    if not _hooked:
        # Hooks stay for as long as the process lives.
        sys.addaudithook(_note)
        _hooked.append(True)
    addresses: list[Any] = []
    _noting.append(addresses)
    try:
        yield addresses
    finally:
        _noting.remove(addresses)


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        for addresses in _noting:
            addresses.append(arguments[1])
