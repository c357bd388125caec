"""Look-ups of names, each in a thread of its own. The guarded resolver imports it.

A name whose server does not answer keeps its thread for as long as the system's resolver pleases. In the threads that a loop
shares for everything, a few such names would stop the look-ups of all workers, and the store. Here they stop nobody; the number
of threads is bounded, and none holds up the end of the process.
"""

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

MAX_AT_ONCE = 256

Address = tuple[socket.AddressFamily, int, str]


class NameLookup:
    """The system's resolver."""

    def __init__(self, max_at_once: int = MAX_AT_ONCE) -> None:
        self._max_at_once = max_at_once
        self._running = 0

    async def addresses(self, host: str, port: int, family: socket.AddressFamily) -> list[Address]:
        """Family, protocol and numeric address of each; OSError if the name has none, or too many look-ups run."""
        if self._running >= self._max_at_once:
            raise OSError(None, "too many look-ups of names run at once")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[Address]] = loop.create_future()

        def tell(say: Callable[[], None]) -> None:
            self._running -= 1
            # Whoever asked may have given up.
            if not done.done():
                say()

        def run() -> None:
            say: Callable[[], None]
            try:
                found = [
                    (socket.AddressFamily(kind), protocol, str(address[0]))
                    for kind, _, protocol, _, address in socket.getaddrinfo(
                        host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
                    )
                ]
            except (OSError, UnicodeError) as error:
                failure = error if isinstance(error, OSError) else OSError(None, "the name is none")
                say = lambda: done.set_exception(failure)  # noqa: E731
            else:
                say = lambda: done.set_result(found)  # noqa: E731
            # The loop may be gone by now.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(tell, say)

        self._running += 1
        threading.Thread(target=run, name="look up a name", daemon=True).start()
        return await done


# One for the process: what is bounded is its threads.
LOOKUP = NameLookup()
