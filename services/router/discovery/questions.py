"""Questions to DNS servers: SRV records, and the addresses of a host. The SRV source imports it; nothing else knows dnspython.

Each question is bounded in time, is asked over UDP, and over TCP where the answer was truncated. Nothing is cached: how long
an answer is good for comes with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dns.asyncbackend
import dns.asyncresolver
import dns.exception
import dns.name
import dns.nameserver
import dns.resolver

# One try, and one question with all of its tries.
TRY_S = 2.0
WITHIN_S = 5.0
MAX_TARGETS = 1000

# A server's address and port.
Server = tuple[str, int]


class NoSuchName(Exception):
    """It was said that the name is not there, or has no such records."""


class QuestionFailed(Exception):
    """It was not said what the name has; the text says why, in our words."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question brought, each once, and for how many seconds it is good."""

    found: frozenset[Any]
    ttl_s: int


class Questions:
    """To these servers; without any to those of the system, which may change."""

    def __init__(self, servers: Sequence[Server] = ()) -> None:
        self._servers = tuple(servers)

    async def services(self, name: str) -> Answer:
        """Hosts (in lower case, absolute) and ports of SRV records. NoSuchName, also where they say that there is no such
        service; QuestionFailed."""
        answer = await self._ask(name, "SRV")
        offered = {
            (record.target.canonicalize().to_text(), record.port)
            for record in answer.rrset or ()
            if record.target != dns.name.root and record.port
        }
        if not offered:
            raise NoSuchName
        if len(offered) > MAX_TARGETS:
            raise QuestionFailed(f"it has more than {MAX_TARGETS} targets")
        return Answer(frozenset(offered), _ttl_s(answer))

    async def addresses(self, host: str) -> Answer:
        """The IPv4 addresses, or the IPv6 ones where there are none: both would be the same worker twice. NoSuchName;
        QuestionFailed."""
        try:
            answer = await self._ask(host, "A")
        except NoSuchName:
            answer = await self._ask(host, "AAAA")
        return Answer(frozenset(record.address for record in answer.rrset or ()), _ttl_s(answer))

    async def _ask(self, name: str, kind: str) -> dns.resolver.Answer:
        try:
            return await self._resolver().resolve(
                name, kind, search=False, lifetime=WITHIN_S, backend=dns.asyncbackend.get_backend("asyncio")
            )
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            raise NoSuchName from None
        except (dns.exception.DNSException, OSError, EOFError) as error:
            # Their texts may hold what a server said.
            raise QuestionFailed(f"the name servers do not say what it has ({type(error).__name__})") from None

    def _resolver(self) -> dns.asyncresolver.Resolver:
        resolver = dns.asyncresolver.Resolver(configure=not self._servers)
        if self._servers:
            resolver.nameservers = [dns.nameserver.Do53Nameserver(address, port) for address, port in self._servers]
        resolver.timeout = TRY_S
        return resolver


def _ttl_s(answer: dns.resolver.Answer) -> int:
    return answer.chaining_result.minimum_ttl
