"""Where the settings say that routers are, and which addresses their names have. `router_pool.py` imports it."""

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import ip_address


async def look_up(target: str) -> Sequence[str]:
    """The addresses of one target, each for one router. A name that cannot be looked up now has none; what is no name and port
    (an address, a socket's path, another scheme of gRPC's) stands for itself."""
    host, _, port = target.rpartition(":")
    if not host or not port.isdecimal() or ":" in host or _is_itself(host):
        return [target]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except OSError:
        return []
    return sorted({_address(family, where) for family, _, _, _, where in found})


def _is_itself(host: str) -> bool:
    if host.lower() == "localhost":
        # Both of its addresses are the same machine's, and mostly the same router's.
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _address(family: socket.AddressFamily, where: tuple[object, ...]) -> str:
    host, port = where[0], where[1]
    return f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}"
