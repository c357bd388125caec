"""Where the settings say that services are, and which addresses their names have. Both pools import it.

Invariant: a name that cannot be looked up keeps the addresses that it had, so that a name server that is away takes nobody
from us.
"""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address

# How often names are looked up again.
LOOK_UP_EVERY_S = 5.0
LOOK_UP_WITHIN_S = 2.0


class Addresses:
    """What a list of targets leads to."""

    def __init__(self, targets: Sequence[str]) -> None:
        # Until they were looked up, names stand for themselves.
        self._found: dict[str, Sequence[str]] = {target: [target] for target in targets}

    @property
    def known(self) -> Sequence[str]:
        """Each once, in the order of the targets."""
        return list(dict.fromkeys(address for found in self._found.values() for address in found))

    async def look_up(self) -> Sequence[str]:
        """The same, asked anew."""
        for target in self._found:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_UP_WITHIN_S):
                    self._found[target] = await look_up(target) or self._found[target]
        return self.known


async def look_up(target: str) -> Sequence[str]:
    """The addresses of one target, each for one process. A name that cannot be looked up now has none; what is no name and port
    (an address, a socket's path, another scheme of gRPC's) stands for itself."""
    host, _, port = target.rpartition(":")
    if not host or not port.isdecimal() or ":" in host or _is_itself(host):
        return [target]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        # The second: a part of the name is empty or too long.
        return []
    return sorted({_address(family, where) for family, _, _, _, where in found})


def _is_itself(host: str) -> bool:
    if host.lower() == "localhost":
        # Both of its addresses are the same machine's, and mostly the same process's.
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _address(family: socket.AddressFamily, where: tuple[object, ...]) -> str:
    host, port = where[0], where[1]
    return f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}"
