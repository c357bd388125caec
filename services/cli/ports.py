"""The addresses at which the services listen, and whether they are free. Imported by the command's modules only."""

import errno
import socket
from dataclasses import dataclass

from services.common.listen import split
from services.common.settings import Settings


@dataclass(frozen=True, slots=True)
class Place:
    """One address and the setting that chooses it."""

    service: str
    setting: str
    address: str

    @property
    def variable(self) -> str:
        """The environment variable of the same setting."""
        return "SPEEDINFER_" + self.setting.upper().replace(".", "__")


def places(settings: Settings) -> list[Place]:
    """Every address at which the three services of these settings listen."""
    found = [
        Place("edge", "edge.listen", settings.edge.listen),
        Place("edge", "edge.admin_listen", settings.edge.admin_listen),
        Place("router", "router.listen", settings.router.listen),
        Place("router", "router.metrics_listen", settings.router.metrics_listen),
        Place("billing", "billing.listen", settings.billing.listen),
        Place("billing", "billing.metrics_listen", settings.billing.metrics_listen),
    ]
    return [place for place in found if place.address]


def why_not_free(place: Place) -> str | None:
    """What stands in the way of listening there, with what to do; None if nothing does."""
    host, port = split(place.address, place.setting)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host or "0.0.0.0", port), family=family):  # noqa: S104 - only to learn whether it can be had
            return None
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        reason = "is taken by another process" if taken else f"cannot be listened on: {error.strerror}"
    other = f"{host}:{port + 1 if 0 < port < 65535 else 0}"
    return (
        f"{place.address} ({place.setting}) {reason}; choose another with {place.variable}={other}"
        f" or `{place.setting.rpartition('.')[2]}` in [{place.service}] of the settings file"
    )


def loopback(address: str, setting: str) -> str:
    """Where a process of this machine reaches a listening address: wildcards become loopback."""
    host, port = split(address, setting)
    if host in ("", "0.0.0.0"):  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    elif host == "::":
        host = "::1"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
