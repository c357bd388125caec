"""Addresses that a worker may have. Pure; registration and the transports import it.

A registration makes the router send requests, with credentials, to an address that somebody typed. Addresses that are never a
worker (the cloud's metadata service, link-local, unspecified, multicast) are refused, however they are written, and again when
a name is resolved.
"""

import ipaddress
import socket
from urllib.parse import SplitResult, urlsplit

_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in ("169.254.169.254", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254")
)
_METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data"})


class EndpointError(ValueError):
    """An address that no worker may have; the text says why."""


def check(url: str) -> SplitResult:
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
    host = parts.hostname.rstrip(".")
    if host in _METADATA_NAMES:
        raise EndpointError("it is a metadata service")
    literal = _literal(host)
    if literal is not None and (reason := forbidden(literal)):
        raise EndpointError(f"it is {reason}")
    return parts


def forbidden(address: str) -> str:
    """Why no worker may have this IP address, or an empty text."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "no IP address"
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour or _nat64(parsed)
        if inner is not None:
            return forbidden(str(inner))
    if parsed in _METADATA:
        return "a metadata service"
    if parsed.is_link_local:
        return "a link-local address"
    if parsed.is_unspecified:
        return "the unspecified address"
    if parsed.is_multicast or str(parsed) == "255.255.255.255":
        return "a multicast or broadcast address"
    return ""


def _nat64(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address in ipaddress.ip_network("64:ff9b::/96"):
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


def _literal(host: str) -> str | None:
    """The address that `host` is, in any form that resolvers take for one; None if it is a name."""
    try:
        return str(ipaddress.ip_address(host.partition("%")[0]))
    except ValueError:
        pass
    try:
        # Also the old forms: one number, hexadecimal, octal, fewer than four parts.
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return None
