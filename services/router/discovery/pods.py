"""The pods of a Kubernetes service, of its EndpointSlices (discovery.k8s.io/v1). Pure; the Kubernetes source uses it.

Consumers of slices must join them: a pod may stand in several (one of IPv4 and one of IPv6; two while the control plane moves
it), and each may be behind. So a pod is known by its UID; it is ready where any slice says so, and terminating where any says
that.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from ipaddress import ip_address

import msgspec

from services.router.discovery.port import Found

MAX_ENDPOINTS = 1000
TCP = "TCP"
# In the order in which they are preferred.
_FAMILIES = ("IPv4", "IPv6")


class InvalidSlice(ValueError):
    """What the API server sent is no EndpointSlice; the text says where, and repeats nothing of it."""


class Conditions(msgspec.Struct):
    """Of an endpoint. What is not said is taken for ready, and for not terminating."""

    ready: bool | None = None
    terminating: bool | None = None


class Target(msgspec.Struct):
    """What an endpoint is."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class Endpoint(msgspec.Struct, rename="camel"):
    """One that serves. All of its addresses lead to the same, and the first is enough."""

    addresses: list[str]
    conditions: Conditions | None = None
    target_ref: Target | None = None


class Port(msgspec.Struct):
    """A port of all endpoints of a slice."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class Metadata(msgspec.Struct, rename="camel"):
    """Of an object, or of a list of them."""

    name: str = ""
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Slice(msgspec.Struct, rename="camel"):
    """An EndpointSlice, as far as we read it. The API server writes null for an empty list."""

    metadata: Metadata
    address_type: str = ""
    endpoints: list[Endpoint] | None = None
    ports: list[Port] | None = None


@dataclass(slots=True)
class _Pod:
    uid: str
    name: str
    is_ready: bool = False
    is_terminating: bool = False
    # The best address so far, and how far down the order of families it is.
    found: Found | None = None
    family: int = len(_FAMILIES)


def read_slice(document: bytes | msgspec.Raw) -> Slice:
    """InvalidSlice if it is none."""
    try:
        read = msgspec.json.decode(document, type=Slice)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidSlice(f"it is no EndpointSlice ({type(error).__name__})") from None
    if not read.metadata.name:
        raise InvalidSlice("it has no metadata.name")
    if len(read.endpoints or ()) > MAX_ENDPOINTS:
        raise InvalidSlice(f"it has more than {MAX_ENDPOINTS} endpoints")
    return read


def pods(slices: Iterable[Slice], port: str | int, known: Collection[str]) -> dict[str, Found]:
    """Those that are workers, by UID (by address where an endpoint is no pod).

    `port` is the name of a TCP port of the slices, or a number, which is taken as it is. `known`: those that were workers
    before; they stay until they are terminating or in no slice, while another is one once it is ready.
    """
    seen: dict[str, _Pod] = {}
    for each in slices:
        if each.address_type not in _FAMILIES:
            continue
        family = _FAMILIES.index(each.address_type)
        number = _number(each, port)
        for endpoint in each.endpoints or ():
            _note(seen, endpoint, family, number)
    workers = {
        pod.uid: pod.found
        for pod in seen.values()
        if pod.found is not None and not pod.is_terminating and (pod.is_ready or pod.uid in known)
    }
    return _one_a_name(workers, {pod.uid for pod in seen.values() if pod.is_ready})


def lacks_port(slices: Iterable[Slice], port: str | int) -> bool:
    """Whether there are endpoints, and none of their slices has such a port."""
    served = [each for each in slices if each.endpoints]
    return bool(served) and all(_number(each, port) is None for each in served)


def _note(seen: dict[str, _Pod], endpoint: Endpoint, family: int, number: int | None) -> None:
    address = _address(endpoint.addresses, family)
    if address is None:
        return
    target = endpoint.target_ref
    is_pod = target is not None and target.kind == "Pod" and target.uid
    uid, name = (target.uid, target.name) if target is not None and is_pod else (address, "")
    pod = seen.setdefault(uid, _Pod(uid, name))
    conditions = endpoint.conditions or Conditions()
    pod.is_ready |= conditions.ready is not False
    pod.is_terminating |= conditions.terminating is True
    if number is None:
        return
    found = Found(address, number, name)
    # The smallest where slices differ, so that it does not change with their order.
    if pod.found is None or (family, found.host, found.port) < (pod.family, pod.found.host, pod.found.port):
        pod.found, pod.family = found, family


def _one_a_name(workers: dict[str, Found], ready: Collection[str]) -> dict[str, Found]:
    """A pod of a StatefulSet comes back under its name, and a slice may still have the old one: who is ready has the name."""
    best: dict[str, str] = {}
    for uid in sorted(workers, key=lambda uid: (uid not in ready, uid)):
        best.setdefault(workers[uid].name or uid, uid)
    return {uid: workers[uid] for uid in sorted(best.values())}


def _number(each: Slice, port: str | int) -> int | None:
    if isinstance(port, int):
        return port
    for offered in each.ports or ():
        if (offered.name or "") == port and (offered.protocol or TCP) == TCP and _is_port(offered.port):
            return offered.port
    return None


def _is_port(number: int | None) -> bool:
    return number is not None and 0 < number < 1 << 16


def _address(addresses: list[str], family: int) -> str | None:
    """The first address, if it is one of the family."""
    try:
        parsed = ip_address(addresses[0]) if addresses else None
    except ValueError:
        return None
    return str(parsed) if parsed is not None and f"IPv{parsed.version}" == _FAMILIES[family] else None
