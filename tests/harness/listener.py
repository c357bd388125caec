"""A place where nobody may connect: it listens, counts who came all the same, and lets them go."""

import asyncio
from types import TracebackType

from tests.harness.ports import free_port


class Listener:
    """`async with Listener("127.0.0.2", "::1") as listener:` listens there on `listener.port` and on the port after it."""

    def __init__(self, *hosts: str) -> None:
        self._hosts = hosts
        self._servers: list[asyncio.Server] = []
        self.port = 0
        # Who was connected to.
        self.came: list[str] = []

    async def __aenter__(self) -> "Listener":
        self.port = free_port(1)
        for host in self._hosts:
            for port in (self.port, self.port + 1):
                self._servers.append(await asyncio.start_server(self._note, host, port))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.close()
            await server.wait_closed()

    def _note(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came.append(writer.get_extra_info("sockname")[0])
        writer.close()
