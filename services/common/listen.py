"""Addresses of the form `host:port`, and `unix:/path` where a gRPC service may listen. Anybody may import it."""

import socket
from pathlib import Path

from services.common.errors import ConfigurationError

_UNIX = "unix:"
_LOOK_S = 1.0


def unix_path(address: str) -> Path | None:
    """The path of a Unix socket's address; None for any other."""
    return Path(address.removeprefix(_UNIX)) if address.startswith(_UNIX) else None


def why_no_socket(path: Path) -> str:
    """Why nobody can listen at a Unix socket; empty if nothing speaks against it. One that a dead process left is none: who
    listens replaces it."""
    if not path.is_absolute():
        return "the path must be absolute: unix:/run/speedinfer/router.sock"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(_LOOK_S)
        try:
            caller.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return ""
        except OSError as error:
            return str(error)
    return "another process listens there"


def split(address: str, setting: str) -> tuple[str, int]:
    """Host and port of an address such as `127.0.0.1:8080` or `[::1]:8080`. ConfigurationError names the setting."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigurationError(f"{setting}: {address!r} is not host:port")
    return host.strip("[]"), int(port)
