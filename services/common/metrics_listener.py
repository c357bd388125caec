"""Where a service offers its metrics over HTTP, in threads of its own. Billing and the router use it; the edge has a listener.

Closing it takes no time: whoever succeeds the service waits for it.
"""

import socket
from contextlib import suppress

from prometheus_client import CollectorRegistry, start_http_server

from services.common import listen
from services.common.errors import ConfigurationError


class MetricsListener:
    """Listens from its making on. ConfigurationError names the setting if the address cannot be had."""

    def __init__(self, address: str, setting: str, registry: CollectorRegistry) -> None:
        host, port = listen.split(address, setting)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise ConfigurationError(f"{setting}: cannot listen on {address}: {error.strerror}") from error

    def close(self) -> None:
        """Stop listening, and wait until the thread has ended."""
        # It looks twice a second whether it is to end, and whenever somebody connects, or nobody can any more.
        with suppress(OSError):
            self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
