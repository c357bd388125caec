"""The system's name resolution, scripted: names of a test's own, which may lead elsewhere each time they are asked for."""

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

Answer = Sequence[str]
# Addresses, or a function that gives them anew each time.
Zone = Mapping[str, Answer | Callable[[], Answer]]


@contextmanager
def serves(zone: Zone) -> Iterator[list[str]]:
    """Names of `zone` resolve as it says (no address: the name is not known), others as they do. Gives the names asked for."""
    real: Callable[..., Any] = socket.getaddrinfo
    asked: list[str] = []

    def scripted(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name not in zone:
            return real(host, port, *arguments, **options)
        asked.append(name)
        entry = zone[name]
        addresses = entry() if callable(entry) else entry
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "the name is not known")
        return [_info(address, int(port)) for address in addresses]

    with patch("socket.getaddrinfo", scripted):
        yield asked


def _info(address: str, port: int) -> tuple[Any, ...]:
    if ":" in address:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)
