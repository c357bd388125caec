"""Addresses that a worker may have. Pure; whoever judges or makes connections to workers imports it.

Some addresses are never a worker's: link-local, the clouds' metadata services, unspecified, multicast, broadcast. Beyond that
an operator may name the networks that workers are in (`router.allowed_networks`); then every other address is refused.

An IPv6 address that carries an IPv4 one (mapped, compatible, 6to4, translated, Teredo, ISATAP) leads to both, so both are
judged, and the stricter word stands.
"""

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_METADATA = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "fd00:ec2::23",
        "fd00:ec2::254",
        "fd00:42::42",
        "fd20:ce::254",
    )
)
# Linux takes every address of it that it takes at all for this machine.
_THIS_NETWORK = ip_network("0.0.0.0/8")
_BROADCAST = ip_address("255.255.255.255")
# Both prefixes that are used for NAT64 (of the second, the form with the IPv4 address at the end), and the one of stateless
# translation.
_TRANSLATED = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"), IPv6Network("::ffff:0:0:0/96"))
_COMPATIBLE = IPv6Network("::/96")
# ::/96 has two addresses that are not IPv4 in disguise: unspecified and loopback.
_FIRST_COMPATIBLE = 2
_LOW_32 = 0xFFFF_FFFF
_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})


class Networks:
    """Where workers may be."""

    def __init__(self, allowed: Sequence[Network] | None = None) -> None:
        """`allowed` None: everywhere but where no worker ever is."""
        self._allowed = None if allowed is None else tuple(allowed)

    def refusal(self, address: str) -> str:
        """Why no worker may have this address, to be read after "it is"; an empty text if one may. With a zone it is none."""
        try:
            parsed = ip_address(address)
        except ValueError:
            return "no IP address"
        if isinstance(parsed, IPv6Address) and parsed.scope_id is not None:
            return "an address with a zone"
        forms = list(_forms(parsed))
        for form in forms:
            if reason := _never(form):
                return reason
        for form in forms:
            if not self._is_allowed(form):
                return f"{form}, which is in none of router.allowed_networks ({self._named()})"
        return ""

    def _is_allowed(self, address: Address) -> bool:
        return self._allowed is None or any(address in network for network in self._allowed)

    def _named(self) -> str:
        return ", ".join(map(str, self._allowed or ()))


EVERYWHERE = Networks()


def _forms(address: Address) -> Iterator[Address]:
    """The addresses that a connection to `address` may end at."""
    if isinstance(address, IPv4Address):
        yield address
        return
    if address.ipv4_mapped is not None:
        # Only another way to write it: no IPv6 is spoken.
        yield address.ipv4_mapped
        return
    yield address
    number = int(address)
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    is_compatible = address in _COMPATIBLE and number >= _FIRST_COMPATIBLE
    if is_compatible or any(address in network for network in _TRANSLATED) or number >> 32 & _LOW_32 in _ISATAP:
        yield IPv4Address(number & _LOW_32)


def _never(address: Address) -> str:
    if address in _METADATA:
        return "a metadata service"
    if address.is_link_local:
        return "a link-local address"
    if address.is_unspecified or address in _THIS_NETWORK:
        return "the unspecified address"
    if address.is_multicast or address == _BROADCAST:
        return "a multicast or broadcast address"
    return ""
