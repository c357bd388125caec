"""What all workers of one source have in common: a registration, of which theirs are made. Pure; `sources.py` makes it."""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from services.common import ids
from services.router import registration as registrations
from services.router.discovery.port import Found
from services.router.networks import EVERYWHERE
from services.router.registration import InvalidRegistration

DEFAULT_PORT = 80


class Template:
    """A registration whose endpoint's host is a name; its id is how the workers' ids begin."""

    def __init__(self, document: Mapping[str, Any], *, finds_ports: bool = False) -> None:
        """InvalidRegistration if no worker can be made of it. `finds_ports`: each worker's port is found with its address, and
        the name only stands where the address will be."""
        registration = registrations.read(document)
        parts = urlsplit(registration.endpoint)
        assert parts.hostname, "a registration's endpoint has a host"
        if EVERYWHERE.refusal(parts.hostname) != "no IP address":
            raise InvalidRegistration("runtime_endpoint", "runtime_endpoint: it must have a name for a host")
        if parts.scheme != "http":
            # A certificate is for the name, and what is connected to is an address.
            raise InvalidRegistration("runtime_endpoint", "runtime_endpoint: it must begin with http://")
        if finds_ports and parts.port is not None:
            raise InvalidRegistration(
                "runtime_endpoint",
                "runtime_endpoint: it must have no port, since each worker's is found with its address",
            )
        if getattr(registration.config, "grpc_endpoint", None):
            raise InvalidRegistration(
                "runtime_config.grpc_endpoint", "runtime_config.grpc_endpoint: it would be the same for all addresses"
            )
        self.name: str = parts.hostname
        self.port = parts.port or DEFAULT_PORT
        self._document = document
        self._path = parts.path
        self._finds_ports = finds_ports

    def at(self, found: Iterable[Found]) -> dict[str, dict[str, Any]]:
        """The registrations of these workers, by id. Two that would have the same id are one."""
        made: dict[str, dict[str, Any]] = {}
        for each in sorted(set(found), key=lambda each: (each.name, each.host, each.port)):
            host = f"[{each.host}]" if ":" in each.host else each.host
            endpoint = f"http://{host}:{each.port}{self._path}"
            worker_id = self._id(each)
            made.setdefault(worker_id, {**self._document, "worker_id": worker_id, "runtime_endpoint": endpoint})
        return made

    def _id(self, found: Found) -> str:
        begins = self._document["worker_id"]
        named = f"{begins}-{found.name}"
        if found.name and ids.is_worker_id(named):
            return named
        return f"{begins}-{found.host}-{found.port}" if self._finds_ports else f"{begins}-{found.host}"
