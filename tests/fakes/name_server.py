"""A DNS server on loopback, over UDP and TCP at one port, that answers what a test has it answer, well or badly."""

import asyncio
import struct
from types import TracebackType
from typing import cast

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

TTL_S = 300
# What a UDP answer may have without EDNS; more is truncated.
MAX_UDP_BYTES = 512
PORTS_TRIED = 20


class NameServer:
    """The server. What is set on it takes effect with the next question."""

    def __init__(self) -> None:
        # (name, type) -> records as a zone file has them. A name without any of its types is not there (NXDOMAIN).
        self.records: dict[tuple[str, str], list[str]] = {}
        self.ttl_s = TTL_S
        # Name -> how it is answered instead: an rcode, `silence`, or `nonsense`.
        self.faults: dict[str, str] = {}
        # Questions, in order: `udp` or `tcp`, name, type.
        self.asked: list[tuple[str, str, str]] = []
        self._transport: asyncio.DatagramTransport | None = None
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> "NameServer":
        loop = asyncio.get_running_loop()
        for _ in range(PORTS_TRIED):
            server = await asyncio.start_server(self._serve_tcp, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            try:
                self._transport, _ = await loop.create_datagram_endpoint(
                    lambda: _Udp(self), local_addr=("127.0.0.1", port)
                )
            except OSError:
                server.close()
                await server.wait_closed()
                continue
            self._server, self.port = server, port
            return self
        raise AssertionError("no port is free for both UDP and TCP")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._transport is not None:
            self._transport.close()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    @property
    def address(self) -> str:
        """As the settings name it."""
        return f"127.0.0.1:{self.port}"

    async def asked_again(self, times: int = 2) -> None:
        """Wait until SRV records were asked for so many times more, so that what is set now was heard."""
        until = self._times() + times
        async with asyncio.timeout(20):
            while self._times() < until:
                await asyncio.sleep(0.01)

    def _times(self) -> int:
        return sum(kind == "SRV" and by == "udp" for by, _, kind in self.asked)

    def answer(self, wire: bytes, by: str) -> bytes | None:
        """What is said to a question; None: nothing."""
        query = dns.message.from_wire(wire)
        question = query.question[0]
        name, kind = question.name.to_text(omit_final_dot=True).lower(), dns.rdatatype.to_text(question.rdtype)
        self.asked.append((by, name, kind))
        fault = self.faults.get(name, "")
        if fault == "silence":
            return None
        if fault == "nonsense":
            return wire[:2] + b"\x81\x80" + b"\xff" * 20
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA
        if fault:
            response.set_rcode(dns.rcode.from_text(fault))
        elif found := self.records.get((name, kind)):
            response.answer.append(dns.rrset.from_text_list(question.name, self.ttl_s, "IN", kind, found))
        elif not any(each == name for each, _ in self.records):
            response.set_rcode(dns.rcode.NXDOMAIN)
        whole = response.to_wire()
        if by == "udp" and len(whole) > MAX_UDP_BYTES:
            response.answer.clear()
            response.flags |= dns.flags.TC
            return response.to_wire()
        return whole

    async def _serve_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            (size,) = struct.unpack("!H", await reader.readexactly(2))
            answer = self.answer(await reader.readexactly(size), "tcp")
            if answer is not None:
                writer.write(struct.pack("!H", len(answer)) + answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            # Whoever asked has left.
            pass
        finally:
            writer.close()


class _Udp(asyncio.DatagramProtocol):
    def __init__(self, server: NameServer) -> None:
        self._server = server
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        answer = self._server.answer(data, "udp")
        if answer is not None and self._transport is not None:
            self._transport.sendto(answer, address)
