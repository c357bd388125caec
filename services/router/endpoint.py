"""The address that a registration names, as it is written. Pure; registration and the transports import it.

A registration makes the router send requests, with credentials, to an address that somebody typed. What is no plain
`http(s)://host[:port][/path]` is refused, and so is every way to write an address that no worker may have (`networks.py`).
Names are judged by what they resolve to, when they are resolved (`transport/guarded_resolver.py`).
"""

import re
import socket
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from services.router.networks import EVERYWHERE, Networks

_METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data"})
# Readers of URLs differ about everything else: percent signs, zones, backslashes, characters that another host is made of.
_NAME = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?")
_BRACKETED = re.compile(r"\[[^\[\]]*\](?::\d*)?")
MAX_NAME_LENGTH = 253


class EndpointError(ValueError):
    """An address that no worker may have; the text says why."""


def check(url: str, networks: Networks = EVERYWHERE) -> SplitResult:
    """The parts of `url`. EndpointError if it is not `http(s)://host[:port][/path]` of a host that may be a worker."""
    if not url.isascii() or any(character <= " " or character == "\x7f" for character in url):
        raise EndpointError("it has characters that no address has")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise EndpointError(str(error)) from None
    if parts.scheme not in ("http", "https"):
        raise EndpointError("it must begin with http:// or https://")
    if not parts.hostname or port == 0:
        raise EndpointError("it has no host, or no port that can be used")
    if "@" in parts.netloc:
        raise EndpointError("it holds credentials; use runtime_config.headers or runtime_config.api_key")
    if "?" in url or "#" in url:
        raise EndpointError("it must have neither a query nor a fragment")
    if "[" in parts.netloc and not _BRACKETED.fullmatch(parts.netloc):
        raise EndpointError("something stands beside the brackets of its host")
    if parts.netloc.endswith(":"):
        raise EndpointError("it has a colon and no port")
    _check_host(parts.hostname, "[" in parts.netloc, networks)
    return parts


def _check_host(host: str, bracketed: bool, networks: Networks) -> None:
    """`host` is in lower case."""
    literal = host if bracketed else _literal(host.rstrip("."))
    if literal is not None:
        if reason := networks.refusal(literal):
            raise EndpointError(f"it is {reason}")
        return
    if len(host) > MAX_NAME_LENGTH or not _NAME.fullmatch(host):
        raise EndpointError("its host is neither a name nor an IP address")
    if host.rstrip(".") in _METADATA_NAMES:
        raise EndpointError("it is a metadata service")


def _literal(host: str) -> str | None:
    """The address that `host` is, in any form that resolvers take for one; None if it is a name."""
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        # Also the old forms: one number, hexadecimal, octal, fewer than four parts.
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return None
