"""Addresses of the form `host:port`. Anybody may import it."""

from services.common.errors import ConfigurationError


def split(address: str, setting: str) -> tuple[str, int]:
    """Host and port of an address such as `127.0.0.1:8080` or `[::1]:8080`. ConfigurationError names the setting."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(f"{setting}: {address!r} is not host:port")
    return host.strip("[]"), int(port)
