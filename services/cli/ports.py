"""The addresses at which the services listen, and whether they are free. Imported by the command's modules only."""

import errno
import itertools
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.common.listen import split, unix_path, why_no_socket
from services.common.settings import Settings

_WILDCARDS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared, not bound
# How far from the wanted port a free one is looked for.
_LOOK_AT_PORTS = 1000


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
    """Every port at which the three services of these settings listen."""
    found = [
        Place("edge", "edge.listen", settings.edge.listen),
        *(
            Place("edge", "edge.admin_listen", following(settings.edge.admin_listen, "edge.admin_listen", index))
            for index in range(settings.edge.workers if settings.edge.admin_listen else 1)
        ),
        Place("router", "router.listen", settings.router.listen),
        Place("router", "router.metrics_listen", settings.router.metrics_listen),
        Place("billing", "billing.listen", settings.billing.listen),
        Place("billing", "billing.metrics_listen", settings.billing.metrics_listen),
    ]
    return [place for place in found if place.address and unix_path(place.address) is None]


def obstacles(settings: Settings, services: Sequence[str]) -> list[str]:
    """What stands in the way of these services' listening, a sentence each with what to do; empty if nothing does."""
    if taken := list(_sockets(settings, services)):
        return taken
    all_places = places(settings)
    own = [place for place in all_places if place.service in services]
    # With one address for two settings, the second would find the first in its way: that is said before anything starts.
    return list(_same(own, all_places)) or [reason for place in own if (reason := why_not_free(place, all_places))]


def why_not_free(place: Place, all_places: Sequence[Place]) -> str | None:
    """What stands in the way of listening there, with what to do; None if nothing does."""
    host, port = split(place.address, place.setting)
    if (error := _bind(host, port)) is None:
        return None
    if error.errno == errno.EADDRINUSE:
        reason = "is taken by another process"
    elif isinstance(error, socket.gaierror):
        # Its strerror speaks of services and nodes.
        reason = f"cannot be listened on: the host {host!r} is not known"
    else:
        reason = f"cannot be listened on: {error.strerror}"
    return f"{place.address} ({place.setting}) {reason}; {_way_out(place, all_places)}"


def following(address: str, setting: str, index: int) -> str:
    """The address whose port is `index` above; port 0, any that is free, stays."""
    host, port = split(address, setting)
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port + index if port else 0}"


def loopback(address: str, setting: str) -> str:
    """Where a process of this machine reaches a listening address: wildcards become loopback."""
    if unix_path(address) is not None:
        return address
    host, port = split(address, setting)
    if host in ("", "0.0.0.0"):  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    elif host == "::":
        host = "::1"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _sockets(settings: Settings, services: Sequence[str]) -> Iterator[str]:
    """What stands in the way at Unix sockets, which are for gRPC."""
    for service, address in (("router", settings.router.listen), ("billing", settings.billing.listen)):
        path = unix_path(address)
        if service in services and path is not None and (why := why_no_socket(path)):
            yield f"{address} ({service}.listen) cannot be listened on: {why}"


def _same(own: Sequence[Place], all_places: Sequence[Place]) -> Iterator[str]:
    for first, second in itertools.combinations(own, 2):
        one_host, one_port = split(first.address, first.setting)
        other_host, other_port = split(second.address, second.setting)
        # Port 0 is any that is free, and a wildcard takes the port from every host.
        hosts = {_host(one_host), _host(other_host)}
        if one_port == other_port != 0 and (len(hosts) == 1 or hosts & _WILDCARDS):
            yield (
                f"{first.setting} and {second.setting} have the same address ({second.address});"
                f" {_way_out(second, all_places)}"
            )


def _host(host: str) -> str:
    return "127.0.0.1" if host == "localhost" else host


def _bind(host: str, port: int) -> OSError | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host or "0.0.0.0", port), family=family):  # noqa: S104 - only to learn whether it can be had
            return None
    except OSError as error:
        return error


def _way_out(place: Place, all_places: Sequence[Place]) -> str:
    host, port = split(place.address, place.setting)
    shown = f"[{host}]" if ":" in host else host
    return (
        f"choose another with {place.variable}={shown}:{_free_port(host, port, all_places)}"
        f" or `{place.setting.rpartition('.')[2]}` in [{place.service}] of the settings file"
    )


def _free_port(host: str, port: int, all_places: Sequence[Place]) -> int:
    """The first after `port` that is free and no other setting's; 0, any that is free, if there is none."""
    ours = {split(place.address, place.setting)[1] for place in all_places}
    for other in range(port + 1, min(port + _LOOK_AT_PORTS, 65536)):
        # Only a port that is taken is a reason to look further; a host that cannot be had cannot with any port.
        error = None if other in ours else _bind(host, other)
        if other not in ours and (error is None or error.errno not in (errno.EADDRINUSE, errno.EACCES)):
            return other
    return 0
